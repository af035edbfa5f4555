# SPDX-License-Identifier: Apache-2.0
"""W4A16: float16 activations times 4-bit weights, C = A @ W^T, where W is unpacked on the way to the tensor cores.

Two weights lie in a byte, the even column in its low half. A group of neighbouring weights of a row shares a scale and,
where `with_zeros`, a zero point: w = (q - zero) * scale with q from 0 to 15 (without: from -8 to 7, stored with 8
added). `fast_decoding` turns a 4-bit number into float16 by putting it into the mantissa of 1024 and subtracting.

* `matmul_w4a16` is the tile program for many rows of A;
* `gemv_w4a16` is for few: a warp computes one element, reading 16 bytes of weights, 32 of them, at a time.

`python example_dequant_gemm_w4a16.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse
from math import gcd

import torch
from sum_parts import make_sum

import tilelang
import tilelang.language as T
from tilelang.autotuner import GemmTile, packed_gemm_tile, packed_split_k
from tilelang.testing import assert_relative_error

RESIDENT_BYTES = 1024  # of scales and zeros of a row of W, of which so many may stay in shared memory


def unpack(packed, j):
    """The 4-bit number of column j, from the byte that holds it: an int32 from 0 to 15."""
    return T.bitwise_and(T.shift_right(T.cast(packed, "int32"), j % 2 * 4), 15)


def to_float16(number, fast_decoding):
    """A number from 0 to 15 in float16."""
    if fast_decoding:
        # 0x6400 is 1024.0, whose last mantissa bit is worth 1.
        return T.reinterpret(T.cast(T.bitwise_or(number, 0x6400), "uint16"), "float16") - T.float16(1024)
    return T.cast(number, "float16")


@tilelang.jit(out_idx=[4])
def matmul_w4a16(
    M,
    N,
    K,
    group=128,
    with_zeros=True,
    fast_decoding=False,
    block_M=None,
    block_N=None,
    block_K=None,
    num_stages=None,
    threads=None,
    split_k=None,
):
    """A kernel (A (M, K), packed (N, K / 2), scales (N, K / group), zeros (N, K / group)) -> C (M, N) float16.

    `split_k` blocks share a tile of C, each with a part of K, where there are few tiles; a second launch adds them up.
    """
    row_bytes = 4 * T.ceildiv(K, group)  # of scales and zeros of a row of W
    tile = packed_gemm_tile(M, N, K, 4, min(row_bytes, RESIDENT_BYTES)) if block_M is None else GemmTile()
    tile = tile.pinned(block_M=block_M, block_N=block_N, block_K=block_K, num_stages=num_stages, threads=threads)
    block_M, block_N, block_K = tile.block_M, tile.block_N, tile.block_K
    if split_k is None:
        split_k = packed_split_k(M, N, K, tile)
    steps = T.ceildiv(T.ceildiv(K, block_K), split_k)  # of a block
    sum_parts = make_sum(split_k, M, N, "float16")
    # A block's scales and zeros lie in shared memory all the time, or where they are many, come with the weights.
    resident = row_bytes <= RESIDENT_BYTES
    if resident and split_k == 1:
        columns = T.ceildiv(steps * block_K, group)
    else:  # groups that a part, or a step, may touch
        width = steps * block_K if resident else block_K
        columns = (group - gcd(group, width) + width - 1) // group + 1

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), "float16"),
        zeros: T.Tensor((N, K // group), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        if split_k > 1:
            parts = T.alloc_global((split_k, M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split_k, threads=tile.threads) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), "float16")
            packed_shared = T.alloc_shared((block_N, block_K // 2), "uint8")
            scales_shared = T.alloc_shared((block_N, columns), "float16")
            zeros_shared = T.alloc_shared((block_N, columns), "float16")
            W_local = T.alloc_fragment((block_N, block_K), "float16")
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            first = bz * (steps * block_K)  # column of A
            T.clear(C_local)
            if resident:
                T.copy(scales[bx * block_N, first // group], scales_shared)
                if with_zeros:
                    T.copy(zeros[bx * block_N, first // group], zeros_shared)
            for k in T.Pipelined(steps, num_stages=tile.num_stages):
                start = first + k * block_K
                T.copy(A[by * block_M, start], A_shared)
                T.copy(packed[bx * block_N, start // 2], packed_shared)
                if not resident:
                    T.copy(scales[bx * block_N, start // group], scales_shared)
                    if with_zeros:
                        T.copy(zeros[bx * block_N, start // group], zeros_shared)
                for i, j in T.Parallel(block_N, block_K):
                    g = (first % group + k * block_K + j) // group if resident else (start % group + j) // group
                    number = to_float16(unpack(packed_shared[i, j // 2], j), fast_decoding)
                    zero, scale = zeros_shared[i, g] if with_zeros else T.float16(8), scales_shared[i, g]
                    W_local[i, j] = T.fma(number, scale, -(zero * scale))  # a group's zero * scale is computed once
                # The weights are in registers: they become the rows of wgmma.
                T.gemm(A_shared, W_local, C_local, transpose_B=True)
            if split_k > 1:
                T.copy(C_local, parts[bz, by * block_M, bx * block_N])
            else:
                T.copy(C_local, C[by * block_M, bx * block_N])

        if split_k > 1:
            sum_parts(parts, C)

    return main


@tilelang.jit(out_idx=[4])
def gemv_w4a16(M, N, K, group=128, with_zeros=True, columns=4):
    """The same product for few rows M and a K that 32 divides; a warp computes one element of C."""
    lanes, vector = 32, 32
    step = lanes * vector

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), "float16"),
        zeros: T.Tensor((N, K // group), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, columns), M, threads=(lanes, columns)) as (bn, m):
            A_local = T.alloc_local((vector,), "float16")
            packed_local = T.alloc_local((vector // 2,), "uint8")
            total = T.alloc_var("float32", 0.0)
            lane, n = T.get_thread_binding(0), bn * columns + T.get_thread_binding(1)
            for k in T.serial(T.ceildiv(K, step)):
                start = k * step + lane * vector
                if n < N and start < K:
                    for v in T.vectorized(vector):
                        A_local[v] = A[m, start + v]
                    for v in T.vectorized(vector // 2):
                        packed_local[v] = packed[n, start // 2 + v]
                    g = start // group
                    zero = zeros[n, g] if with_zeros else T.float16(8)
                    part = T.alloc_var("float32", 0.0)
                    for v in T.unroll(vector):
                        number = to_float16(unpack(packed_local[v // 2], v), False) - zero
                        part += T.cast(A_local[v], "float32") * T.cast(number, "float32")
                    total += part * T.cast(scales[n, g], "float32")
            result = T.warp_reduce_sum(total)
            if lane == 0 and n < N:
                C[m, n] = result

    return main


def make_inputs(M: int, N: int, K: int, group: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """A, packed, scales, zeros."""
    a = torch.randn(M, K, device=device).half()
    packed = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8, device=device)
    scales = (torch.rand(N, K // group, device=device) + 0.5).half()
    zeros = torch.randint(0, 16, (N, K // group), device=device).half()
    return a, packed, scales, zeros


def dequantize(packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | float) -> torch.Tensor:
    """The weights (N, K) in float64."""
    numbers = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).double()
    group = numbers.shape[1] // scales.shape[1]
    wide = (x.double().repeat_interleave(group, dim=1) if isinstance(x, torch.Tensor) else x for x in (scales, zeros))
    scale, zero = wide
    return (numbers - zero) * scale


def check(kernel: tilelang.JITKernel, *inputs: torch.Tensor, with_zeros: bool = True) -> float:
    a, packed, scales, zeros = inputs
    weights = dequantize(packed, scales, zeros if with_zeros else 8.0)
    return assert_relative_error(kernel(*inputs), a.double() @ weights.T, 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, size in (("M", 1024), ("N", 8192), ("K", 8192)):
        parser.add_argument(f"--{axis}", type=int, default=size if on_gpu else 256)
    args = parser.parse_args()

    device, group = "cuda" if on_gpu else "cpu", 128
    for name, rows, factory in (("gemm", args.M, matmul_w4a16), ("gemv", 1, gemv_w4a16)):
        size = (rows, args.N, args.K)
        kernel, inputs = factory(*size, group), make_inputs(*size, group, device)
        print(f"{name}: relative error {check(kernel, *inputs):.2e}", end="")
        if on_gpu:
            ms = tilelang.profiler.do_bench(lambda kernel=kernel, inputs=inputs: kernel(*inputs))
            print(f" {ms:8.4f} ms {2e-9 * rows * args.N * args.K / ms:8.2f} TFLOP/s", end="")
            print(f" {0.5e-6 * args.N * args.K / ms:8.1f} GB/s of weights", end="")
        print()


if __name__ == "__main__":
    main()
