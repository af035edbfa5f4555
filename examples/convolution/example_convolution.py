# SPDX-License-Identifier: Apache-2.0
"""2-D convolution as a matrix product (im2col): images NHWC, weights (kernel height, kernel width, channels, filters).

Row m of the left operand holds the pixels under the kernel at output position m; it is gathered on the fly in a
`T.Parallel` loop and never exists in memory. The right operand is the weights, seen as a matrix.

`python example_convolution.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


def output_size(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@tilelang.jit(out_idx=[2])
def convolution(
    N,
    C,
    H,
    W,
    F,
    K,
    stride=1,
    dilation=1,
    padding=1,
    block_M=128,
    block_N=128,
    block_K=32,
    num_stages=3,
    threads=256,
    dtype="float16",
):
    """A kernel (images (N, H, W, C), weights (K, K, C, F)) -> (N, OH, OW, F)."""
    OH, OW = (output_size(size, K, stride, dilation, padding) for size in (H, W))
    rows, depth = N * OH * OW, K * K * C

    @T.prim_func
    def main(
        images: T.Tensor((N, H, W, C), dtype),
        weights: T.Tensor((K, K, C, F), dtype),
        out: T.Tensor((N, OH, OW, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(rows, block_M), threads=threads) as (bx, by):
            columns = T.alloc_shared((block_M, block_K), dtype)
            weights_shared = T.alloc_shared((block_K, block_N), dtype)
            out_local = T.alloc_fragment((block_M, block_N), "float32")
            weights_flat = T.reshape(weights, (depth, F))
            out_flat = T.reshape(out, (rows, F))

            T.clear(out_local)
            for k in T.Pipelined(T.ceildiv(depth, block_K), num_stages=num_stages):
                for i, j in T.Parallel(block_M, block_K):
                    m, d = by * block_M + i, k * block_K + j
                    y = m % (OH * OW) // OW * stride + d // (K * C) * dilation - padding
                    x = m % OW * stride + d // C % K * dilation - padding
                    inside = m < rows and d < depth and y >= 0 and y < H and x >= 0 and x < W
                    columns[i, j] = T.if_then_else(inside, images[m // (OH * OW), y, x, d % C], 0)
                T.copy(weights_flat[k * block_K, bx * block_N], weights_shared)
                T.gemm(columns, weights_shared, out_local)
            T.copy(out_local, out_flat[by * block_M, bx * block_N])

    return main


def make_inputs(N: int, C: int, H: int, W: int, F: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    return torch.randn(N, H, W, C, device=device).half(), torch.randn(K, K, C, F, device=device).half()


def reference(images: torch.Tensor, weights: torch.Tensor, stride: int, dilation: int, padding: int) -> torch.Tensor:
    out = torch.nn.functional.conv2d(
        images.permute(0, 3, 1, 2), weights.permute(3, 2, 0, 1), stride=stride, dilation=dilation, padding=padding
    )
    return out.permute(0, 2, 3, 1)


def check(
    kernel: tilelang.JITKernel,
    images: torch.Tensor,
    weights: torch.Tensor,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 1,
) -> float:
    expected = reference(images.double(), weights.double(), stride, dilation, padding)
    return assert_relative_error(kernel(images, weights), expected, 5e-4)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"N": (128, 1), "C": (128, 16), "H": (64, 8), "W": (64, 8), "F": (128, 16), "K": (3, 3)}
    for axis, (large, small) in sizes.items():
        parser.add_argument(f"--{axis}", type=int, default=large if on_gpu else small)
    for option in ("stride", "dilation", "padding"):
        parser.add_argument(f"--{option}", type=int, default=1)
    args = parser.parse_args()

    size = (args.N, args.C, args.H, args.W, args.F, args.K)
    shape = (args.stride, args.dilation, args.padding)
    kernel = convolution(*size, *shape)
    images, weights = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    print(f"relative error {check(kernel, images, weights, *shape):.2e}")
    if on_gpu:
        flops = 2 * kernel(images, weights).numel() * args.K * args.K * args.C
        for name, call in {
            "im2col": lambda: kernel(images, weights),
            "torch": lambda: reference(images, weights, *shape),
        }.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:7s} {ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
