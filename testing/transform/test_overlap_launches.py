# SPDX-License-Identifier: Apache-2.0
"""Kernels wait for the grids in front of them behind their own start, and in front of everything others may see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tile_programs import gemm_program
from tvm import tirx

import tilelang
import tilelang.language as T
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.codegen.legalize import launch_facts
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import launches, walk_list
from tilelang.support.options import CompileOptions
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower


def names(func: Any) -> list[list[str]]:
    """The device ops of each launch, in program order."""
    found = [[DeviceOp.from_node(s) for s in walk_list(kernel.body)] for kernel in launches(func)]
    return [[op.name for op in ops if op is not None] for ops in found]


@T.prim_func
def averages(X: T.Tensor((64, 128), "float32"), Y: T.Tensor((64, 128), "float32")):
    """The second launch reads what nothing but the first writes, at an address that is known from the start."""
    mean = T.alloc_global((64,), "float32")
    with T.Kernel(64, threads=128) as bx:
        f = T.alloc_fragment((128,), "float32")
        s = T.alloc_fragment((1,), "float32")
        T.copy(X[bx, :], f)
        T.reduce_sum(f, s, dim=0)
        for i in T.serial(200):
            s[0] = s[0] * 0.5 + s[0] * 0.5
        mean[bx] = s[0] / 128
    with T.Kernel(64, threads=128) as bx:
        for i in T.Parallel(128):
            Y[bx, i] = X[bx, i] - mean[bx]


def first_op(kernel: Any) -> str:
    """The first statement that is no arithmetic, if it is a device op."""
    first = next(s for s in kernel.body if not isinstance(s, tirx.Bind))
    op = DeviceOp.from_node(first)
    return op.name if op is not None else str(first)


@T.prim_func
def chain(A: T.Tensor((4096,), "float32"), B: T.Tensor((4096,), "float32"), C: T.Tensor((4096,), "float32")):
    with T.Kernel(16, threads=256) as bx:
        for i in T.Parallel(256):
            B[bx * 256 + i] = A[4095 - bx * 256 - i] + 1.0
    with T.Kernel(16, threads=256) as bx:
        for i in T.Parallel(256):
            C[bx * 256 + i] = B[4095 - bx * 256 - i] * 2.0


@T.prim_func
def leaving(A: T.Tensor((512,), "float32"), n: T.int32):
    with T.Kernel(4, threads=128) as bx:
        A[bx * 128 + T.get_thread_binding()] = 2.0
    with T.Kernel(4, threads=128) as bx:
        if bx >= n:
            T.thread_return()
        A[bx * 128 + T.get_thread_binding()] = 1.0


@T.prim_func
def by_hand(A: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=128):
        T.pdl_sync()
        A[T.get_thread_binding()] = 1.0
        T.pdl_trigger()


def test_barriers_and_tensor_maps_come_first_then_the_wait_then_everything_else() -> None:
    ops = names(lower(gemm_program(), "sm_90a"))[0]
    at = ops.index("griddep_wait")
    assert ops[at + 1] == "griddep_launch"
    start = {"mbar_init", "fence_mbar_init", "sync_threads", "prefetch_tensormap"}
    assert set(ops[:at]) == {*start, "tma_prefetch_2d"}
    assert ops[:at].count("prefetch_tensormap") == 3
    assert "tma_load_2d" in ops[at:]


def text_before_the_wait(func: Any) -> str:
    return lower_to_cuda(func, ARCHS["sm_90a"]).text.split("{\n", 1)[1].split("tl_griddep_wait();")[-2]


@pytest.mark.parametrize(("room_kib", "iterations"), [(64, 2), (32, 1), (10000, 8), (31, 0)])
def test_first_loads_are_asked_for_early(room_kib: int, iterations: int) -> None:
    """Whole iterations that fit, of the thread that loads; an iteration of this program loads 32 KiB."""
    ops = names(lower(gemm_program(), "sm_90a", CompileOptions(early_bytes=room_kib << 10)))[0]
    assert ops[: ops.index("griddep_wait")].count("tma_prefetch_2d") == (ops.count("tma_load_2d") if iterations else 0)
    text = text_before_the_wait(lower(gemm_program(), "sm_90a", CompileOptions(early_bytes=room_kib << 10)))
    assert (f"< {iterations};" in text) == (iterations > 0)


@T.prim_func
def experts(
    rows: T.Tensor((8,), "int32"), A: T.Tensor((64, 64), "float16"), W: T.Tensor((8, 64, 64), "float16"),
    C: T.Tensor((8, 64, 64), "float16"), n: T.int32,
):  # fmt: skip
    with T.Kernel(8, threads=128) as bx:
        C[bx, T.get_thread_binding() // 64, T.get_thread_binding() % 64] = 0
    with T.Kernel(8, threads=128) as bx:
        As, Ws = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.clear(acc)
        for k in T.Pipelined(n, num_stages=2):
            T.copy(A[:, :], As)
            T.copy(W[rows[bx], :, :], Ws)
            T.gemm(As, Ws, acc)
        T.copy(acc, C[bx, :, :])


def few_rows(blocks: Any) -> Any:
    """A product of 16 rows in so many blocks, or in as many as a tensor says."""
    columns = 64 * (T.dynamic("n") if blocks is None else blocks)

    @T.prim_func
    def main(
        A: T.Tensor((16, 256), "float16"), B: T.Tensor((columns, 256), "float16"), C: T.Tensor((16, columns), "float16")
    ):
        with T.Kernel(T.ceildiv(columns, 64), threads=128) as bx:
            As, Bs = T.alloc_shared((16, 64), "float16"), T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((16, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 64], As)
                T.copy(B[bx * 64, k * 64], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C[0, bx * 64])

    return main


@pytest.mark.parametrize(("blocks", "late"), [(132, False), (133, True), (500, True), (None, False)])
def test_blocks_that_outnumber_the_sms_let_the_next_grid_start_behind_their_last_loads(
    blocks: int | None, late: bool
) -> None:
    """Beside fewer blocks there is room for those that wait."""
    text = lower_to_cuda(lower(few_rows(blocks), "sm_90a"), ARCHS["sm_90a"]).text.split("tl_griddep_wait();")[-1]
    assert text.count("tl_griddep_launch();") == 1
    before, behind = text.split("tl_griddep_launch();")
    assert ("tl_tma_load_2d" in before) == late
    assert ("tl_tma_load_2d" in behind) != late


def test_places_that_memory_decides_are_not_asked_for() -> None:
    """What memory says may not be looked at yet. How often a loop runs may be a parameter."""
    text = text_before_the_wait(lower(experts, "sm_90a"))
    requests = [line for line in text.split("\n") if "tl_tma_prefetch" in line]
    assert requests and all("A_map" in line for line in requests)
    assert "rows_ptr[" not in text


def test_later_launches_wait_in_front_of_their_first_access() -> None:
    func = lower(chain, "sm_90a")
    assert names(func) == [["griddep_launch"], ["griddep_wait", "griddep_launch"]]
    assert [facts.programmatic for facts in launch_facts(func)] == [False, True]
    assert first_op(launches(func)[1]) == "griddep_wait"


def test_what_waits_loads_through_no_restricted_pointer() -> None:
    """CUDA moves loads through `__restrict__` pointers that a kernel stores nothing through in front of the wait."""
    text = lower_to_cuda(lower(chain, "sm_90a"), ARCHS["sm_90a"]).text
    first, second = (line for line in text.split("\n") if "__global__" in line and line.endswith("{"))
    assert "__restrict__" in first and "__restrict__" not in second
    (by_program,) = (
        line
        for line in lower_to_cuda(lower(by_hand, "sm_90a"), ARCHS["sm_90a"]).text.split("\n")
        if "__global__" in line and line.endswith("{")
    )
    assert "__restrict__" not in by_program


def test_blocks_that_leave_at_once_wait_as_well() -> None:
    """A grid whose blocks do not wait could end before the one in front of it."""
    _, kernel = launches(lower(leaving, "sm_90a"))
    assert first_op(kernel) == "griddep_wait"


@pytest.mark.parametrize(
    ("func", "arch", "options"),
    [(chain, "sm_80", {}), (chain, "sm_90a", {"overlap_launches": False}), (by_hand, "sm_90a", {})],
    ids=["old device", "switched off", "by hand"],
)
def test_nothing_is_added(func: Any, arch: str, options: dict[str, bool]) -> None:
    ops = sum(names(lower(func, arch, CompileOptions(**options))), [])
    assert ops.count("griddep_wait") == (func is by_hand)


@pytest.mark.gpu
def test_a_launch_reads_what_the_one_in_front_wrote() -> None:
    kernel = tilelang.compile(averages, target="cuda")
    for _ in range(20):
        x, y = torch.randn(64, 128, device="cuda"), torch.empty(64, 128, device="cuda")
        kernel(x, y)
        torch.testing.assert_close(y, x - x.mean(1, keepdim=True))


@T.prim_func
def product_of_new_weights(
    W: T.Tensor((2048, 2048), "float16"), A: T.Tensor((64, 2048), "float16"), V: T.Tensor((2048, 2048), "float16"),
    C: T.Tensor((64, 2048), "float32"),
):  # fmt: skip
    """The second launch asks for weights that the first is about to write."""
    with T.Kernel(2048, threads=128) as bx:
        f = T.alloc_fragment((2048,), "float16")
        T.copy(W[bx, :], f)
        for i in T.Parallel(2048):
            V[2047 - bx, i] = f[i] * T.float16(2)
    with T.Kernel(32, threads=128) as bx:
        As, Vs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.clear(acc)
        for k in T.Pipelined(32, num_stages=4):
            T.copy(A[0, k * 64], As)
            T.copy(V[bx * 64, k * 64], Vs)
            T.gemm(As, Vs, acc, transpose_B=True)
        T.copy(acc, C[0, bx * 64])


@pytest.mark.gpu
def test_what_is_asked_for_early_is_loaded_as_it_is_written_later() -> None:
    kernel = tilelang.compile(product_of_new_weights, target="cuda")
    a, v = torch.randint(-2, 3, (64, 2048), device="cuda").half(), torch.zeros(2048, 2048, device="cuda").half()
    for _ in range(30):
        w = torch.randint(-2, 3, (2048, 2048), device="cuda").half()
        c = torch.empty(64, 2048, device="cuda")
        kernel(w, a, v, c)
        assert torch.equal(c, a.float() @ (2 * w.flip(0)).float().T)


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True], ids=["stream", "graph"])
def test_a_long_chain_of_launches_keeps_its_order(captured: bool) -> None:
    """Each launch reads, in reverse, what the one in front of it wrote."""
    kernel = tilelang.compile(chain, target="cuda")
    x, y, z = (torch.zeros(4096, device="cuda") for _ in range(3))

    def run() -> None:
        for _ in range(50):  # x -> 2 (x + 1) -> x, so x_n+1 = 2 x_n + 2
            kernel(x, y, z)
            x.copy_(z * 0.5 - 1.0)
            kernel(x, y, z)
            kernel(z, y, x)
            x.mul_(0.25).sub_(1.5)

    if captured:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            run()
            x.zero_()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                run()
        torch.cuda.synchronize()
        x.copy_(torch.arange(4096.0, device="cuda"))
        graph.replay()
    else:
        x.copy_(torch.arange(4096.0, device="cuda"))
        run()
    torch.cuda.synchronize()
    assert torch.equal(x.cpu(), torch.arange(4096.0))
