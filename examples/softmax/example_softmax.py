# SPDX-License-Identifier: Apache-2.0
"""Softmax over the rows of a matrix, in three forms.

* `softmax`: whole rows in registers;
* `softmax_ring`: rows that fill a processor on their own: blocks walk over them, and the next rows are on their way to
  shared memory while one is reduced;
* `softmax_online`: long rows tile by tile: one pass keeps the running maximum and the running sum relative to it, as
  flash attention does, a second one writes the result.

`python example_softmax.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634


def block_of(N):
    """(rows, threads) of a block: 16 elements a thread, two loads of 16 bytes in 16 bits, in so few registers that all
    threads of a processor run, and several blocks: the loads of some are on the way while others reduce."""
    threads = min(max(tilelang.next_power_of_2(N) // 16, 128), 512)
    return max(threads * 16 // N, 1), threads


@tilelang.jit(out_idx=[1])
def softmax(M, N, block_M=None, threads=None, dtype="float16"):
    """A kernel X (M, N) -> softmax(X, dim=1)."""
    rows, count = block_of(N)
    block_M, threads = block_M or rows, threads or count

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            X_local = T.alloc_fragment((block_M, N), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bm * block_M, 0], X_local)
            T.reduce_max(X_local, largest, dim=1)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] = T.exp2((X_local[i, j] - largest[i]) * LOG2E)
            T.reduce_sum(X_local, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] /= total[i]
            T.copy(X_local, Y[bm * block_M, 0])

    return main


@tilelang.jit(out_idx=[1])
def softmax_ring(M, N, blocks=132, threads=512, num_stages=3, dtype="float16"):
    """The same kernel for rows of 16384 elements and more; `blocks`: one for each processor."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(blocks, threads=threads) as first:
            X_shared = T.alloc_shared((1, N), dtype)
            X_local = T.alloc_fragment((1, N), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            for step in T.Pipelined(T.ceildiv(M - first, blocks), num_stages=num_stages):
                row = step * blocks + first
                T.copy(X[row, 0], X_shared)
                T.copy(X_shared, X_local)
                T.reduce_max(X_local, largest, dim=1)
                for i, j in T.Parallel(1, N):
                    X_local[i, j] = T.exp2((X_local[i, j] - largest[i]) * LOG2E)
                T.reduce_sum(X_local, total, dim=1)
                for i, j in T.Parallel(1, N):
                    X_local[i, j] /= total[i]
                T.copy(X_local, Y[row, 0])

    return main


@tilelang.jit(out_idx=[1])
def softmax_online(M, N, block_M=4, block_N=1024, threads=128, dtype="float16"):
    """The same kernel for rows of any length."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            X_local = T.alloc_fragment((block_M, block_N), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            sums = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(largest, -T.infinity("float32"))
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bm * block_M, k * block_N], X_local)
                for i, j in T.Parallel(block_M, block_N):
                    X_local[i, j] = T.if_then_else(k * block_N + j < N, X_local[i, j], -T.infinity("float32"))
                T.copy(largest, before)
                T.reduce_max(X_local, largest, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    X_local[i, j] = T.exp2((X_local[i, j] - largest[i]) * LOG2E)
                T.reduce_sum(X_local, sums, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp2((before[i] - largest[i]) * LOG2E) + sums[i]
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bm * block_M, k * block_N], X_local)
                for i, j in T.Parallel(block_M, block_N):
                    X_local[i, j] = T.exp2((X_local[i, j] - largest[i]) * LOG2E) / total[i]
                T.copy(X_local, Y[bm * block_M, k * block_N])

    return main


def make_input(M: int, N: int, device: str = "cpu") -> torch.Tensor:
    """Numbers for which exp without the shift by the maximum would overflow float16."""
    return (torch.randn(M, N, device=device) * 4 + 20).half()


def check(kernel: tilelang.JITKernel, x: torch.Tensor) -> float:
    return assert_relative_error(kernel(x), x.float().softmax(dim=1), 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--M", type=int, default=8192 if on_gpu else 32)
    parser.add_argument("--N", type=int, default=4096 if on_gpu else 512)
    args = parser.parse_args()

    x = make_input(args.M, args.N, device="cuda" if on_gpu else "cpu")
    kernels = {form.__name__: form(args.M, args.N) for form in (softmax, softmax_ring, softmax_online)}
    for name, kernel in kernels.items():
        print(f"{name:8s} relative error {check(kernel, x):.2e}")
    if on_gpu:
        calls = {name: lambda kernel=kernel: kernel(x) for name, kernel in kernels.items()}
        for name, call in {**calls, "torch": lambda: x.softmax(dim=1)}.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:8s} {ms:8.4f} ms {4e-6 * args.M * args.N / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
