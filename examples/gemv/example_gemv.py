# SPDX-License-Identifier: Apache-2.0
"""Matrix times vector, y = A @ x: bound by reading A once. Four ways to write it.

* `gemv_tile`: a block takes rows of A tile by tile and reduces along K with `T.reduce_sum`; the compiler spreads the
  tile over the threads so that they read A in whole sectors;
* `gemv_threads`: the same by hand: a row of threads walks along a row of A, each with 16 bytes at a time, and adds up
  its lanes with `T.warp_reduce_sum`;
* `gemv`: what a decoding step of one row wants, y in the type of A: a warp has some rows and loads 16 bytes a lane from
  each of them several times before it uses the first, so that enough bytes are on their way; x comes from L1;
* `gemv_splitk`: few long rows: blocks share rows and add their parts with `T.atomic_add` (y float32, of zeros).

`python example_gemv.py` checks all and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


@tilelang.jit(out_idx=[2])
def gemv_tile(N, K, block_N=16, block_K=512, threads=128, dtype="float16"):
    """A kernel (A (N, K), x (K,)) -> y (N,) float32."""

    @T.prim_func
    def main(A: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bn:
            A_local = T.alloc_fragment((block_N, block_K), dtype)
            x_local = T.alloc_fragment((block_K,), dtype)
            products = T.alloc_fragment((block_N, block_K), "float32")
            sums = T.alloc_fragment((block_N,), "float32")
            T.clear(products)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(A[bn * block_N, k * block_K], A_local)
                T.copy(x[k * block_K], x_local)
                for i, j in T.Parallel(block_N, block_K):
                    products[i, j] += T.cast(A_local[i, j], "float32") * T.cast(x_local[j], "float32")
            T.reduce_sum(products, sums, dim=1)
            T.copy(sums, y[bn * block_N])

    return main


@tilelang.jit(out_idx=[2])
def gemv_threads(N, K, rows=4, dtype="float16"):
    """A kernel (A (N, K), x (K,)) -> y (N,) float32 for a K that 8 divides; a warp computes one element of y."""
    lanes, vector = 32, 8
    step = lanes * vector

    @T.prim_func
    def main(A: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, rows), threads=(lanes, rows)) as bn:
            A_local = T.alloc_local((vector,), dtype)
            x_local = T.alloc_local((vector,), dtype)
            total = T.alloc_var("float32", 0.0)
            lane, row = T.get_thread_binding(0), bn * rows + T.get_thread_binding(1)
            for k in T.serial(T.ceildiv(K, step)):
                start = k * step + lane * vector
                if row < N and start < K:
                    for v in T.vectorized(vector):
                        A_local[v] = A[row, start + v]
                        x_local[v] = x[start + v]
                    for v in T.serial(vector):
                        total += T.cast(A_local[v], "float32") * T.cast(x_local[v], "float32")
            result = T.warp_reduce_sum(total)
            if lane == 0 and row < N:
                y[row] = result

    return main


@tilelang.jit(out_idx=[2])
def gemv(N, K, rows=1, unroll=8, warps=4, dtype="float16"):
    """A kernel (A (N, K), x (K,)) -> y (N,) in `dtype`, for a K that 8 divides.

    A warp computes `rows` elements of y with up to rows * unroll loads in flight.
    """
    lanes, vector = 32, 8
    step = lanes * vector * unroll

    @T.prim_func
    def main(A: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, rows * warps), threads=(lanes, warps)) as bn:
            A_local = T.alloc_local((rows, unroll, vector), dtype)
            x_local = T.alloc_local((vector,), dtype)
            sums = T.alloc_local((rows,), "float32")
            lane, first = T.get_thread_binding(0), (bn * warps + T.get_thread_binding(1)) * rows
            for r in T.unroll(rows):
                sums[r] = 0.0
            for k in T.serial(T.ceildiv(K, step)):
                for r in T.unroll(rows):
                    for u in T.unroll(unroll):
                        at = k * step + (u * lanes + lane) * vector
                        if K % step == 0 or at < K:
                            for v in T.vectorized(vector):
                                A_local[r, u, v] = A[T.min(first + r, N - 1), at + v]
                for u in T.unroll(unroll):
                    at = k * step + (u * lanes + lane) * vector
                    if K % step == 0 or at < K:
                        for v in T.vectorized(vector):
                            x_local[v] = x[at + v]
                        for r in T.unroll(rows):
                            for v in T.unroll(vector):
                                sums[r] += T.cast(A_local[r, u, v], "float32") * T.cast(x_local[v], "float32")
            for r in T.unroll(rows):
                result = T.warp_reduce_sum(sums[r])
                if lane == 0 and first + r < N:
                    y[first + r] = result

    return main


@tilelang.jit
def gemv_splitk(N, K, split_k, block_N=8, block_K=512, threads=128, dtype="float16"):
    """A kernel (A (N, K), x (K,), y (N,) float32) that adds A @ x to y."""
    part = T.ceildiv(T.ceildiv(K, split_k), block_K) * block_K

    @T.prim_func
    def main(A: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), split_k, threads=threads) as (bn, bk):
            A_local = T.alloc_fragment((block_N, block_K), dtype)
            x_local = T.alloc_fragment((block_K,), dtype)
            products = T.alloc_fragment((block_N, block_K), "float32")
            sums = T.alloc_fragment((block_N,), "float32")
            T.clear(products)
            for k in T.serial(part // block_K):
                T.copy(A[bn * block_N, bk * part + k * block_K], A_local)
                T.copy(x[bk * part + k * block_K], x_local)
                for i, j in T.Parallel(block_N, block_K):
                    products[i, j] += T.cast(A_local[i, j], "float32") * T.cast(x_local[j], "float32")
            T.reduce_sum(products, sums, dim=1)
            T.atomic_add(y[bn * block_N], sums)

    return main


def make_inputs(N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(N, K, device=device).half(), torch.randn(K, device=device).half()


def check(kernel: tilelang.JITKernel, a: torch.Tensor, x: torch.Tensor, limit: float = 1e-5) -> float:
    expected = a.double() @ x.double()
    y = torch.zeros_like(expected, dtype=torch.float32)
    # The split-K kernel takes y, the others give it.
    result = kernel(a, x) if len(kernel.out_idx) else (kernel(a, x, y), y)[1]
    return assert_relative_error(result, expected, limit)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--N", type=int, default=16384 if on_gpu else 64)
    parser.add_argument("--K", type=int, default=16384 if on_gpu else 1024)
    args = parser.parse_args()

    size = (args.N, args.K)
    a, x = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    kernels = {
        "tile": gemv_tile(*size),
        "threads": gemv_threads(*size),
        "unrolled": gemv(*size),
        "split-K": gemv_splitk(*size, 4),
    }
    for name, kernel in kernels.items():
        limit = 1e-3 if name == "unrolled" else 1e-5  # rounded to float16
        print(f"{name:8s} relative error {check(kernel, a, x, limit):.2e}", end="")
        if on_gpu:
            extra = [] if len(kernel.out_idx) else [torch.zeros(args.N, device="cuda")]
            ms = tilelang.profiler.do_bench(lambda kernel=kernel, extra=extra: kernel(a, x, *extra))
            print(f" {ms:8.4f} ms {2e-6 * args.N * args.K / ms:8.1f} GB/s", end="")
        print()


if __name__ == "__main__":
    main()
