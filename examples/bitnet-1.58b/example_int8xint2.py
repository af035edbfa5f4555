# SPDX-License-Identifier: Apache-2.0
"""The kernels of a BitNet b1.58 layer: int8 activations times ternary weights, which are -1, 0 or 1.

Four weights lie in a byte, two bits each, in the order of the columns; a weight is stored with 1 added. `pack` and
`unpack` convert. All kernels take any number of rows M.

* `quantize_rows`: every row divided by its scale, largest absolute value / 127, and rounded to int8;
* `matmul_int8xint2`: unpacks tiles of weights to int8 for the tensor cores; the sum is exact in int32;
* `gemv_int8xint2`: for few rows: a warp computes one element, reading 16 bytes of weights, 64 of them, at a time.

`python example_int8xint2.py` checks all and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


def pack(weights: torch.Tensor) -> torch.Tensor:
    """Ternary weights (N, K) as bytes (N, K / 4)."""
    parts = (weights.to(torch.uint8) + 1).unflatten(1, (-1, 4))
    return parts[..., 0] | parts[..., 1] << 2 | parts[..., 2] << 4 | parts[..., 3] << 6


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Bytes (N, K / 4) as int8 weights (N, K)."""
    return torch.stack([packed >> s & 3 for s in (0, 2, 4, 6)], dim=-1).flatten(1).to(torch.int8) - 1


def weight_of(byte, j):
    """The weight of column j, from the byte that holds it, as int32."""
    return T.bitwise_and(T.shift_right(T.cast(byte, "int32"), j % 4 * 2), 3) - 1


@tilelang.jit(out_idx=[1, 2])
def quantize_rows(K, block_M=4, threads=128, dtype="float16"):
    """A kernel X (M, K) -> (Y (M, K) int8, scales (M,) float32) with X close to Y * scales."""
    M = T.dynamic("M")

    @T.prim_func
    def main(X: T.Tensor((M, K), dtype), Y: T.Tensor((M, K), "int8"), scales: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            X_local = T.alloc_fragment((block_M, K), "float32")
            Y_local = T.alloc_fragment((block_M, K), "int8")
            scale = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bm * block_M, 0], X_local)
            T.reduce_absmax(X_local, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.max(scale[i], 1e-5) / 127.0
            for i, j in T.Parallel(block_M, K):
                Y_local[i, j] = T.cast(T.nearbyint(X_local[i, j] / scale[i]), "int8")
            T.copy(Y_local, Y[bm * block_M, 0])
            T.copy(scale, scales[bm * block_M])

    return main


@tilelang.jit(out_idx=[4])
def matmul_int8xint2(N, K, block_M=64, block_N=128, block_K=128, num_stages=3, threads=256, out_dtype="float16"):
    """A kernel (A (M, K) int8, packed (N, K / 4), scale_a (M,), scale_w (1,)) -> A @ W^T * scales (M, N)."""
    M = T.dynamic("M")

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        packed: T.Tensor((N, K // 4), "uint8"),
        scale_a: T.Tensor((M,), "float32"),
        scale_w: T.Tensor((1,), "float32"),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "int8")
            packed_shared = T.alloc_shared((block_N, block_K // 4), "uint8")
            W_shared = T.alloc_shared((block_N, block_K), "int8")
            C_local = T.alloc_fragment((block_M, block_N), "int32")
            C_scaled = T.alloc_fragment((block_M, block_N), "float32")
            scale_rows = T.alloc_fragment((block_M,), "float32")

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(packed[bx * block_N, k * block_K // 4], packed_shared)
                for i, j in T.Parallel(block_N, block_K):
                    W_shared[i, j] = weight_of(packed_shared[i, j // 4], j)
                # Behind the last column the weights read as -1, but A reads as 0 there.
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(scale_a[by * block_M], scale_rows)
            for i, j in T.Parallel(block_M, block_N):
                C_scaled[i, j] = T.cast(C_local[i, j], "float32") * (scale_rows[i] * scale_w[0])
            T.copy(C_scaled, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[4])
def gemv_int8xint2(N, K, columns=4, out_dtype="float16"):
    """The same product for few rows M and a K that 64 divides."""
    lanes, vector = 32, 64
    step = lanes * vector
    M = T.dynamic("M")

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        packed: T.Tensor((N, K // 4), "uint8"),
        scale_a: T.Tensor((M,), "float32"),
        scale_w: T.Tensor((1,), "float32"),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, columns), M, threads=(lanes, columns)) as (bn, m):
            A_local = T.alloc_local((vector,), "int8")
            packed_local = T.alloc_local((vector // 4,), "uint8")
            total = T.alloc_var("int32", 0)
            lane, n = T.get_thread_binding(0), bn * columns + T.get_thread_binding(1)
            for k in T.serial(T.ceildiv(K, step)):
                start = k * step + lane * vector
                if n < N and start < K:
                    for v in T.vectorized(vector):
                        A_local[v] = A[m, start + v]
                    for v in T.vectorized(vector // 4):
                        packed_local[v] = packed[n, start // 4 + v]
                    for v in T.unroll(vector):
                        total += T.cast(A_local[v], "int32") * weight_of(packed_local[v // 4], v)
            result = T.warp_reduce_sum(total)
            if lane == 0 and n < N:
                C[m, n] = T.cast(result, "float32") * (scale_a[m] * scale_w[0])

    return main


def make_inputs(M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """X (M, K) float16, ternary weights (N, K), scale_w (1,)."""
    x = torch.randn(M, K, device=device).half() * torch.logspace(-1, 1, M, device=device)[:, None].half()
    weights = torch.randint(-1, 2, (N, K), dtype=torch.int8, device=device)
    return x, weights, torch.tensor([0.02], device=device)


def check_quantize(kernel: tilelang.JITKernel, x: torch.Tensor) -> float:
    """Asserts scales, numbers of the whole range, and the way back to half a step; the last's relative error."""
    y, scales = kernel(x)
    assert_relative_error(scales, x.float().abs().amax(dim=1) / 127, 1e-6)
    assert int(y.abs().max()) == 127
    assert bool(((y * scales[:, None] - x.float()).abs() <= 0.5001 * scales[:, None]).all())
    return assert_relative_error(y * scales[:, None], x.float(), 2e-2)


def check_product(kernel: tilelang.JITKernel, x: torch.Tensor, weights: torch.Tensor, scale_w: torch.Tensor) -> float:
    scale_a = x.float().abs().amax(dim=1) / 127
    a = (x.float() / scale_a[:, None]).round().to(torch.int8)
    expected = (a.double() @ weights.double().T) * (scale_a[:, None] * scale_w)
    return assert_relative_error(kernel(a, pack(weights), scale_a, scale_w), expected, 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, size in (("M", 1024), ("N", 8192), ("K", 8192)):
        parser.add_argument(f"--{axis}", type=int, default=size if on_gpu else 256)
    args = parser.parse_args()

    device = "cuda" if on_gpu else "cpu"
    x, weights, scale_w = make_inputs(args.M, args.N, args.K, device)
    assert torch.equal(unpack(pack(weights)), weights)
    quantize = quantize_rows(args.K)
    print(f"quantize: relative error {check_quantize(quantize, x):.2e}")
    packed = pack(weights)
    for name, rows, factory in (("gemm", args.M, matmul_int8xint2), ("gemv", 1, gemv_int8xint2)):
        kernel = factory(args.N, args.K)
        print(f"{name}:     relative error {check_product(kernel, x[:rows], weights, scale_w):.2e}", end="")
        if on_gpu:
            y, scales = quantize(x[:rows])
            ms = tilelang.profiler.do_bench(lambda k=kernel, y=y, s=scales: k(y, packed, s, scale_w))
            print(f" {ms:8.4f} ms {2e-9 * rows * args.N * args.K / ms:8.2f} TOP/s", end="")
            print(f" {0.25e-6 * args.N * args.K / ms:8.1f} GB/s of weights", end="")
        print()


if __name__ == "__main__":
    main()
