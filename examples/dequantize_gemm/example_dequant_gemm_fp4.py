# SPDX-License-Identifier: Apache-2.0
"""Products with 4-bit floating-point weights, C = A @ W^T: plain e2m1, or mxfp4 (e2m1 with a power of two a group).

e2m1 has a sign, two bits of exponent and one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Two weights lie in a byte, the
even column in its low half. In mxfp4 32 neighbouring weights of a row share a scale, a float8_e8m0fnu: the exponent of
a power of two and nothing else.

Decoding is exact: moved into the exponent of a bfloat16, the three bits are the weight times 2^-126, subnormals
included; and a power of two scales it exactly.

* `matmul_fp4` is the tile program for many rows of A; `gemv_fp4` is for few: a warp computes one element.

`python example_dequant_gemm_fp4.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch
from sum_parts import make_sum

import tilelang
import tilelang.language as T
from tilelang.autotuner import GemmTile, packed_gemm_tile, packed_split_k
from tilelang.testing import assert_relative_error

GROUP = 32  # weights that share a scale
RESIDENT_BYTES = 1024  # of scales of a row of W, of which so many may stay in shared memory
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decode(packed, j):
    """The weight of column j, from the byte that holds it, in bfloat16."""
    code = T.bitwise_and(T.shift_right(T.cast(packed, "int32"), j % 2 * 4), 15)
    magnitude = T.shift_left(T.bitwise_and(code, 7), 6)
    sign = T.shift_left(T.bitwise_and(code, 8), 12)
    return T.reinterpret(T.cast(T.bitwise_or(magnitude, sign), "uint16"), "bfloat16") * T.bfloat16(2**126)


def power(scale):
    """2^(scale - 127) in bfloat16, whose exponent is biased by 127 as well."""
    return T.reinterpret(T.cast(T.shift_left(T.cast(scale, "int32"), 7), "uint16"), "bfloat16")


@tilelang.jit(out_idx=[3], pass_configs={"tl.compute_ahead": True})
def matmul_fp4(
    M, N, K, scaled=True, block_M=None, block_N=None, block_K=None, num_stages=None, threads=None, split_k=None
):
    """A kernel (A (M, K) bfloat16, packed (N, K / 2), scales (N, K / 32) uint8) -> C (M, N) bfloat16.

    `split_k` blocks share a tile of C, each with a part of K, where there are few tiles; a second launch adds them up.
    """
    row_bytes = T.ceildiv(K, GROUP) if scaled else 0  # of scales of a row of W
    resident = row_bytes <= RESIDENT_BYTES  # they lie in shared memory all the time, else they come with the weights
    tile = packed_gemm_tile(M, N, K, 4, min(row_bytes, RESIDENT_BYTES)) if block_M is None else GemmTile()
    tile = tile.pinned(block_M=block_M, block_N=block_N, block_K=block_K, num_stages=num_stages, threads=threads)
    block_M, block_N, block_K = tile.block_M, tile.block_N, tile.block_K
    if split_k is None:
        split_k = packed_split_k(M, N, K, tile)
    steps = T.ceildiv(T.ceildiv(K, block_K), split_k)  # of a block
    sum_parts = make_sum(split_k, M, N, "bfloat16")
    columns = (steps if resident else 1) * block_K // GROUP

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "bfloat16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // GROUP), "uint8"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        if split_k > 1:
            parts = T.alloc_global((split_k, M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split_k, threads=tile.threads) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), "bfloat16")
            packed_shared = T.alloc_shared((block_N, block_K // 2), "uint8")
            scales_shared = T.alloc_shared((block_N, columns), "uint8")
            W_local = T.alloc_fragment((block_N, block_K), "bfloat16")
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            first = bz * (steps * block_K)  # column of A
            T.clear(C_local)
            if scaled and resident:
                T.copy(scales[bx * block_N, first // GROUP], scales_shared)
            for k in T.Pipelined(steps, num_stages=tile.num_stages):
                start = first + k * block_K
                T.copy(A[by * block_M, start], A_shared)
                T.copy(packed[bx * block_N, start // 2], packed_shared)
                if scaled and not resident:
                    T.copy(scales[bx * block_N, start // GROUP], scales_shared)
                for i, j in T.Parallel(block_N, block_K):
                    g = (k * block_K + j) // GROUP if resident else j // GROUP
                    weight = decode(packed_shared[i, j // 2], j)
                    W_local[i, j] = weight * power(scales_shared[i, g]) if scaled else weight
                # The weights are in registers: they become the rows of wgmma.
                T.gemm(A_shared, W_local, C_local, transpose_B=True)
            if split_k > 1:
                T.copy(C_local, parts[bz, by * block_M, bx * block_N])
            else:
                T.copy(C_local, C[by * block_M, bx * block_N])

        if split_k > 1:
            sum_parts(parts, C)

    return main


@tilelang.jit(out_idx=[3])
def gemv_fp4(M, N, K, scaled=True, columns=4):
    """The same product for few rows M; a lane takes one group of 32 weights at a time."""
    lanes = 32

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "bfloat16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // GROUP), "uint8"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, columns), M, threads=(lanes, columns)) as (bn, m):
            A_local = T.alloc_local((GROUP,), "bfloat16")
            packed_local = T.alloc_local((GROUP // 2,), "uint8")
            total = T.alloc_var("float32", 0.0)
            part = T.alloc_var("float32", 0.0)
            lane, n = T.get_thread_binding(0), bn * columns + T.get_thread_binding(1)
            for k in T.serial(T.ceildiv(K // GROUP, lanes)):
                g = k * lanes + lane
                if n < N and g < K // GROUP:
                    for v in T.vectorized(GROUP):
                        A_local[v] = A[m, g * GROUP + v]
                    for v in T.vectorized(GROUP // 2):
                        packed_local[v] = packed[n, g * GROUP // 2 + v]
                    part = 0.0
                    for v in T.unroll(GROUP):
                        part += T.cast(A_local[v], "float32") * T.cast(decode(packed_local[v // 2], v), "float32")
                    total += part * T.cast(power(scales[n, g]), "float32") if scaled else part
            result = T.warp_reduce_sum(total)
            if lane == 0 and n < N:
                C[m, n] = result

    return main


def make_inputs(M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """A, packed, scales."""
    a = torch.randn(M, K, device=device).bfloat16()
    packed = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8, device=device)
    scales = torch.randint(120, 134, (N, K // GROUP), dtype=torch.uint8, device=device)
    return a, packed, scales


def dequantize(packed: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
    """The weights (N, K) in float64, from the table of e2m1."""
    table = torch.tensor([*VALUES, *(-v for v in VALUES)], dtype=torch.float64, device=packed.device)
    weights = table[torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).long()]
    return weights if scales is None else weights * (2.0 ** (scales.double() - 127)).repeat_interleave(GROUP, dim=1)


def check(kernel: tilelang.JITKernel, *inputs: torch.Tensor, scaled: bool = True) -> float:
    a, packed, scales = inputs
    expected = a.double() @ dequantize(packed, scales if scaled else None).T
    return assert_relative_error(kernel(*inputs), expected, 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, size in (("M", 1024), ("N", 8192), ("K", 8192)):
        parser.add_argument(f"--{axis}", type=int, default=size if on_gpu else 256)
    args = parser.parse_args()

    for name, rows, factory in (("gemm", args.M, matmul_fp4), ("gemv", 1, gemv_fp4)):
        for scaled in (False, True):
            size = (rows, args.N, args.K)
            kernel, inputs = factory(*size, scaled), make_inputs(*size, "cuda" if on_gpu else "cpu")
            label = f"{name} {'mxfp4' if scaled else 'e2m1 '}"
            print(f"{label}: relative error {check(kernel, *inputs, scaled=scaled):.2e}", end="")
            if on_gpu:
                ms = tilelang.profiler.do_bench(lambda kernel=kernel, inputs=inputs: kernel(*inputs))
                print(f" {ms:8.4f} ms {2e-9 * rows * args.N * args.K / ms:8.2f} TFLOP/s", end="")
                print(f" {0.5e-6 * args.N * args.K / ms:8.1f} GB/s of weights", end="")
            print()


if __name__ == "__main__":
    main()
