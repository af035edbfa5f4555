# SPDX-License-Identifier: Apache-2.0
"""RMSNorm and LayerNorm over the rows of a matrix.

* `rms_norm`: a block holds whole rows in registers: X is read once;
* `rms_norm_split`: rows that are too long for that are read tile by tile, twice;
* `layer_norm`: mean and variance in float32, then scale and shift.

`python example_norm.py` checks all and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


def block_of(N, elements=16):
    """(rows, threads) of a block: 16 elements a thread, two loads of 16 bytes in 16 bits, in so few registers that all
    threads of a processor run, and several blocks: the loads of some are on the way while others reduce."""
    threads = min(max(tilelang.next_power_of_2(N) // elements, 128), 512)
    return max(threads * elements // N, 1), threads


@tilelang.jit(out_idx=[2])
def rms_norm(M, N, eps=1e-5, block_M=None, threads=None, dtype="bfloat16"):
    """A kernel (X (M, N), weight (N,)) -> X / rms(X) * weight."""
    rows, count = block_of(N)
    block_M, threads = block_M or rows, threads or count

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            X_local = T.alloc_fragment((block_M, N), "float32")
            squares = T.alloc_fragment((block_M, N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            weight_local = T.alloc_fragment((N,), dtype)
            T.copy(X[bm * block_M, 0], X_local)
            T.copy(weight, weight_local)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = X_local[i, j] * X_local[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] *= scale[i] * weight_local[j]
            T.copy(X_local, Y[bm * block_M, 0])

    return main


@tilelang.jit(out_idx=[2])
def rms_norm_split(M, N, eps=1e-5, block_M=4, block_N=1024, threads=128, dtype="bfloat16"):
    """The same kernel for long rows."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            X_local = T.alloc_fragment((block_M, block_N), "float32")
            squares = T.alloc_fragment((block_M, block_N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            weight_local = T.alloc_fragment((block_N,), dtype)
            T.clear(squares)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bm * block_M, k * block_N], X_local)
                for i, j in T.Parallel(block_M, block_N):
                    squares[i, j] += X_local[i, j] * X_local[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bm * block_M, k * block_N], X_local)
                T.copy(weight[k * block_N], weight_local)
                for i, j in T.Parallel(block_M, block_N):
                    X_local[i, j] *= scale[i] * weight_local[j]
                T.copy(X_local, Y[bm * block_M, k * block_N])

    return main


@tilelang.jit(out_idx=[3])
def layer_norm(M, N, eps=1e-5, block_M=None, threads=None, dtype="bfloat16"):
    """A kernel (X (M, N), weight (N,), bias (N,)) -> (X - mean) / std * weight + bias."""
    rows, count = block_of(N, 32 if N > 4096 else 16)  # long rows: two barriers of fewer warps (77.6 us with 16, 71.3)
    block_M, threads = block_M or rows, threads or count

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        bias: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            X_local = T.alloc_fragment((block_M, N), "float32")
            squares = T.alloc_fragment((block_M, N), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            weight_local = T.alloc_fragment((N,), dtype)
            bias_local = T.alloc_fragment((N,), dtype)
            T.copy(X[bm * block_M, 0], X_local)
            T.copy(weight, weight_local)
            T.copy(bias, bias_local)
            T.reduce_sum(X_local, mean, dim=1)
            for i in T.Parallel(block_M):
                mean[i] /= N
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] -= mean[i]
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = X_local[i, j] * X_local[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] = X_local[i, j] * scale[i] * weight_local[j] + bias_local[j]
            T.copy(X_local, Y[bm * block_M, 0])

    return main


def make_inputs(M: int, N: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """X with rows that are off centre, weight, bias."""
    x = torch.randn(M, N, device=device) + torch.randn(M, 1, device=device)
    return x.bfloat16(), torch.randn(N, device=device).bfloat16(), torch.randn(N, device=device).bfloat16()


def check_rms_norm(kernel: tilelang.JITKernel, x: torch.Tensor, weight: torch.Tensor) -> float:
    expected = torch.nn.functional.rms_norm(x.float(), x.shape[-1:], weight.float(), 1e-5)
    return assert_relative_error(kernel(x, weight), expected, 4e-3)


def check_layer_norm(kernel: tilelang.JITKernel, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> float:
    expected = torch.nn.functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), 1e-5)
    return assert_relative_error(kernel(x, weight, bias), expected, 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--M", type=int, default=8192 if on_gpu else 32)
    parser.add_argument("--N", type=int, default=4096 if on_gpu else 512)
    args = parser.parse_args()

    size = (args.M, args.N)
    x, weight, bias = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    rms, split, layer = rms_norm(*size), rms_norm_split(*size), layer_norm(*size)
    print(f"RMSNorm:        relative error {check_rms_norm(rms, x, weight):.2e}")
    print(f"RMSNorm, tiles: relative error {check_rms_norm(split, x, weight):.2e}")
    print(f"LayerNorm:      relative error {check_layer_norm(layer, x, weight, bias):.2e}")
    if on_gpu:
        for name, call in {
            "RMSNorm": lambda: rms(x, weight),
            "RMSNorm, tiles": lambda: split(x, weight),
            "torch": lambda: torch.nn.functional.rms_norm(x, x.shape[-1:], weight),
            "LayerNorm": lambda: layer(x, weight, bias),
            "torch, layer": lambda: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias),
        }.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:15s} {ms:8.4f} ms {4e-6 * args.M * args.N / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
