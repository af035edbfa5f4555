# SPDX-License-Identifier: Apache-2.0
"""Transpose of a matrix: bound by reading and writing it once.

A thread takes a small square whose side is 16 bytes: it loads the square by rows and stores it by columns, both 16
bytes at a time, and turns it in its registers in between. Threads that are neighbours along a row read whole lines,
threads that are neighbours along a column write them. The tile program says so by the layout of its fragment alone;
nothing goes through shared memory, so there are no banks to conflict.

`python example_transpose.py` checks it and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1])
def transpose(M, N, dtype="float16", block_M=64, block_N=64):
    """A kernel X (M, N) -> Y (N, M), Y = X^T."""
    side = 16 // getattr(torch, dtype).itemsize  # of the square of a thread
    across = block_N // side
    threads = block_M // side * across

    def square(i, j):
        """(thread, register) of an element: squares go to the threads row by row."""
        return i // side * across + j // side, i % side * side + j % side

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), dtype)
            T.annotate_layout({tile: T.Fragment((block_M, block_N), square)})
            T.copy(X[by * block_M, bx * block_N], tile)
            for j, i in T.Parallel(block_N, block_M):
                if bx * block_N + j < N and by * block_M + i < M:
                    Y[bx * block_N + j, by * block_M + i] = tile[i, j]

    return main


def check(kernel: tilelang.JITKernel, x: torch.Tensor) -> None:
    """Assert that every element is where it belongs, bit for bit."""
    assert torch.equal(kernel(x), x.T)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--M", type=int, default=8192 if on_gpu else 128)
    parser.add_argument("--N", type=int, default=8192 if on_gpu else 192)
    args = parser.parse_args()

    for dtype in ("float16", "float32"):
        kernel = transpose(args.M, args.N, dtype)
        x = torch.randn(args.M, args.N, device="cuda" if on_gpu else "cpu").to(getattr(torch, dtype))
        check(kernel, x)
        print(f"{dtype}: right", end="")
        if on_gpu:
            for name, call in {
                "tile program": lambda k=kernel, x=x: k(x),
                "torch": lambda x=x: x.T.contiguous(),
            }.items():
                ms = tilelang.profiler.do_bench(call)
                print(f", {name} {ms:8.4f} ms {2e-6 * x.numel() * x.element_size() / ms:8.1f} GB/s", end="")
        print()


if __name__ == "__main__":
    main()
