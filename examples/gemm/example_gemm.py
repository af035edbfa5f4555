# SPDX-License-Identifier: Apache-2.0
"""Matrix product C = A @ B in float16 or bfloat16 with float32 accumulation; either operand may be stored transposed.

A block computes a block_M x block_N tile of C; `T.Pipelined` walks over K and keeps num_stages tiles of A and B in
flight. Sizes need not be multiples of the tiles: what lies outside a tensor reads as 0 and is not written. The tile is
chosen by the shape: large ones for large products, narrow ones with a deep pipeline for few rows.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable

import torch

import tilelang
import tilelang.language as T
from tilelang.autotuner import GemmTile, gemm_tile


@tilelang.jit(out_idx=[-1])
def matmul(
    M,
    N,
    K,
    dtype="bfloat16",
    transpose_A=False,
    transpose_B=False,
    block_M=None,
    block_N=None,
    block_K=None,
    num_stages=None,
    threads=None,
    panel=0,
):
    """A kernel (A, B) -> C. `panel` > 0 rasterises the grid in panels of that many blocks for L2 reuse.

    Without block_M the tile is chosen by M, N and K; what else is given is kept.
    """
    tile = gemm_tile(M, N, K, dtype) if block_M is None else GemmTile()
    tile = tile.pinned(block_M=block_M, block_N=block_N, block_K=block_K, num_stages=num_stages, threads=threads)
    block_M, block_N, block_K, num_stages, threads = dataclasses.astuple(tile)
    a_shape, a_tile = ((K, M), (block_K, block_M)) if transpose_A else ((M, K), (block_M, block_K))
    b_shape, b_tile = ((N, K), (block_N, block_K)) if transpose_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared(a_tile, dtype)
            B_shared = T.alloc_shared(b_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            if panel > 0:
                T.use_swizzle(panel)

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if transpose_A:
                    T.copy(A[k * block_K, by * block_M], A_shared)
                else:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_A=transpose_A, transpose_B=transpose_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def make_inputs(M: int, N: int, K: int, dtype: str, transpose_A: bool, transpose_B: bool) -> tuple[torch.Tensor, ...]:
    """Random A and B as stored, on the GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a_shape = (K, M) if transpose_A else (M, K)
    b_shape = (N, K) if transpose_B else (K, N)
    return tuple(torch.randn(s, device=device).to(getattr(torch, dtype)) for s in (a_shape, b_shape))


def logical(inputs: tuple[torch.Tensor, ...], transpose_A: bool, transpose_B: bool) -> tuple[torch.Tensor, ...]:
    """A (M, K) and B (K, N) as views of the stored operands."""
    a, b = inputs
    return (a.T if transpose_A else a), (b.T if transpose_B else b)


def check(kernel: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], *transposes: bool) -> float:
    """Assert a relative error (Frobenius) of output rounding only; returns it."""
    a, b = (x.float() for x in logical(inputs, *transposes))
    expected = a @ b
    error = ((kernel(*inputs).float() - expected).norm() / expected.norm()).item()
    # Rounding to bfloat16 costs 1.7e-3, to float16 2.1e-4; `not <` also catches NaN.
    if not error < 4e-3:
        raise AssertionError(f"relative error {error:.2e} against float32")
    return error


def main(argv: list[str] | None = None) -> None:
    size = 4096 if torch.cuda.is_available() else 256
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in "MNK":
        parser.add_argument(f"--{axis}", type=int, default=size)
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--transpose_A", action="store_true")
    parser.add_argument("--transpose_B", action="store_true")
    args = parser.parse_args(argv)

    problem = (args.M, args.N, args.K, args.dtype, args.transpose_A, args.transpose_B)
    kernel, inputs = matmul(*problem), make_inputs(*problem)
    print(f"relative error against float32: {check(kernel, inputs, args.transpose_A, args.transpose_B):.2e}")
    a, b = logical(inputs, args.transpose_A, args.transpose_B)
    for name, call in {"tile program": lambda: kernel(*inputs), "torch": lambda: a @ b}.items():
        ms = tilelang.profiler.do_bench(call, warmup=3, rep=12, return_mode="median")
        print(f"{name:16s} {ms:9.4f} ms {2e-9 * args.M * args.N * args.K / ms:9.2f} TFLOP/s")


if __name__ == "__main__":
    main()
