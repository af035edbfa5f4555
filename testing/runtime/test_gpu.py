# SPDX-License-Identifier: Apache-2.0
"""Launching on a device: streams, graphs, empty sizes, checks, reload, host cost, timing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.profiler import do_bench
from tilelang.runtime import load
from tilelang.runtime.native import make_timer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

N = T.dynamic("n")


@tilelang.jit(out_idx=-1, target="cuda")
def scale_rows(width: int = 128):
    @T.prim_func
    def main(A: T.Tensor((N, width), "float16"), factor: T.float32, B: T.Tensor((N, width), "float16")):
        with T.Kernel(T.ceildiv(N, 32), threads=128) as bx:
            for i, j in T.Parallel(32, width):
                if bx * 32 + i < N:
                    B[bx * 32 + i, j] = T.cast(T.cast(A[bx * 32 + i, j], "float32") * factor, "float16")

    return main


@tilelang.jit(target="cuda")
def matmul(A, B, block: int = 64):
    M, K2, K = T.const("M, K2, K")
    A: T.Tensor((M, K), "float16")
    B: T.Tensor((K, K2), "float16")
    C = T.empty((M, K2), "float32")
    with T.Kernel(T.ceildiv(K2, block), T.ceildiv(M, block), threads=128) as (bx, by):
        As = T.alloc_shared((block, 32), "float16")
        Bs = T.alloc_shared((32, block), "float16")
        acc = T.alloc_fragment((block, block), "float32")
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
            T.copy(A[by * block, k * 32], As)
            T.copy(B[k * 32, bx * block], Bs)
            T.gemm(As, Bs, acc)
        T.copy(acc, C[by * block, bx * block])
    return C


def rows(n: int) -> torch.Tensor:
    return torch.randn(n, 128, device="cuda").half()


@pytest.mark.parametrize("n", [0, 1, 31, 32, 1000])
def test_sizes(n: int) -> None:
    a = rows(n)
    assert torch.equal(scale_rows()(a, 2.0), a * 2)


def test_runs_on_the_current_stream() -> None:
    kernel, a = scale_rows(), rows(1 << 16)
    kernel(a, 1.0)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        a.fill_(3)
        b = kernel(a, 2.0)
    stream.synchronize()
    assert bool((b == 6).all())


def test_is_captured_into_a_graph() -> None:
    a, b = torch.randn(256, 128, device="cuda").half(), torch.randn(128, 192, device="cuda").half()
    matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = matmul(a, b)
    a.normal_()
    graph.replay()
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-2, atol=1e-1)


@tilelang.jit(out_idx=-1, target="cuda", pass_configs={"tl.persistent": True})
def running_products(rows: int, columns: int, block: int = 64):
    """C[y, x] = sum over k <= x of A[y, x] B[y, k]: tiles of unequal length, which persistent blocks are handed."""
    shape = (rows, columns * block, block)

    @T.prim_func
    def main(A: T.Tensor(shape, "float16"), B: T.Tensor(shape, "float16"), C: T.Tensor(shape, "float32")):
        with T.Kernel(columns, rows, threads=128) as (bx, by):
            As, Bs = T.alloc_shared((block, block), "float16"), T.alloc_shared((block, block), "float16")
            acc = T.alloc_fragment((block, block), "float32")
            T.clear(acc)
            T.copy(A[by, bx * block, 0], As)
            for k in T.Pipelined(bx + 1, num_stages=2):
                T.copy(B[by, k * block, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by, bx * block, 0])

    return main


def test_tiles_are_handed_out_again_at_every_launch() -> None:
    """Eagerly, on streams at the same time, and in a graph: the counters never meet."""
    rows, columns = 40, 17
    kernel = running_products(rows, columns)
    assert "tile_queue" in kernel.get_kernel_source()
    shape = (rows, columns * 64, 64)
    inputs = [tuple(torch.randn(shape, device="cuda").half() for _ in range(2)) for _ in range(2)]
    want = [kernel(*x).clone() for x in inputs]
    a, b = (t.float().view(rows, columns, 64, 64) for t in inputs[0])
    torch.testing.assert_close(want[0], (a @ b.cumsum(1)).view(shape), rtol=1e-2, atol=0.5)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    got: list[tuple[int, Any]] = []
    for turn in range(40):
        with torch.cuda.stream(streams[turn % 4]):
            got.append((turn % 2, kernel(*inputs[turn % 2])))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = [kernel(*inputs[0]), kernel(*inputs[1])]
    for _ in range(5):
        graph.replay()
        got.append((1, kernel(*inputs[1])))
    torch.cuda.synchronize()
    got += list(enumerate(captured))
    assert all(torch.equal(out, want[which]) for which, out in got)


def test_misfits_are_refused_before_launching() -> None:
    kernel = scale_rows()
    bad: list[tuple[Any, str]] = [
        (rows(4).cpu(), "required a tensor on cuda, given one on cpu"),
        (rows(4).float(), "required dtype float16, given float32"),
        (rows(4)[:, :64], r"required shape\[1\] == 128, given 64"),
        (rows(8)[::2], r"required stride\[0\] == 128"),
        (torch.zeros(4 * 128 + 1, device="cuda").half()[1:].view(4, 128), "aligned to 16 bytes"),
    ]
    for tensor, text in bad:
        with pytest.raises((TypeError, ValueError), match=text):
            kernel(tensor, 1.0)


def test_reloaded_kernel_gives_the_same(tmp_path: Path) -> None:
    kernel, a = scale_rows(), rows(77)
    kernel.export_library(str(tmp_path / "kernel"))
    assert torch.equal(load(tmp_path / "kernel")(a, 1.5), kernel(a, 1.5))


def test_host_cost_is_microseconds() -> None:
    kernel, a = scale_rows(), rows(32)
    for _ in range(50):
        kernel(a, 1.0)
    best = float("inf")
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            kernel(a, 1.0)
        best = min(best, (time.perf_counter() - start) / 200)
    assert best < 20e-6, f"{best * 1e6:.1f} us a call"


@pytest.mark.parametrize("backend", ["event", "cupti", "cudagraph"])
def test_bench_backends_agree_roughly(backend: str) -> None:
    kernel, a = scale_rows(), rows(1 << 18)
    milliseconds = do_bench(lambda: kernel(a, 1.0), backend=backend, warmup=5, rep=20)
    assert 0.005 < milliseconds < 1.0  # 128 MiB moved


def test_timer_measures_the_stream() -> None:
    timer, stream = make_timer(0), torch.cuda.current_stream().cuda_stream
    timer("start", stream)
    torch.cuda._sleep(2_000_000)
    timer("stop", stream)
    assert timer("elapsed", 0) > 0.1


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_runs_on_the_tensors_device() -> None:
    kernel = scale_rows()
    for index in (1, 0):
        a = torch.randn(64, 128, device=f"cuda:{index}").half()
        b = kernel(a, 2.0)
        assert b.device == a.device
        assert torch.equal(b, a * 2)
    with pytest.raises(ValueError, match="required device cuda:0 as argument"):
        tilelang.compile(scale_rows.get_tir(), target="cuda")(rows(4), 1.0, rows(4).to("cuda:1"))
