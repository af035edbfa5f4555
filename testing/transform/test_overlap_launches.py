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
from tilelang.codegen.legalize import launch_facts
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import launches, walk_list
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import lower


def names(func: Any) -> list[list[str]]:
    """The device ops of each launch, in program order."""
    found = [[DeviceOp.from_node(s) for s in walk_list(kernel.body)] for kernel in launches(func)]
    return [[op.name for op in ops if op is not None] for ops in found]


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
    assert set(ops[:at]) == {"mbar_init", "fence_mbar_init", "sync_threads", "prefetch_tensormap"}
    assert ops[:at].count("prefetch_tensormap") == 3
    assert "tma_load_2d" in ops[at:]


def test_every_launch_waits_in_front_of_its_first_access() -> None:
    func = lower(chain, "sm_90a")
    assert names(func) == [["griddep_wait", "griddep_launch"]] * 2
    assert all(facts.programmatic for facts in launch_facts(func))
    for kernel in launches(func):
        assert first_op(kernel) == "griddep_wait"


def test_blocks_that_leave_at_once_wait_as_well() -> None:
    """A grid whose blocks do not wait could end before the one in front of it."""
    (kernel,) = launches(lower(leaving, "sm_90a"))
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
