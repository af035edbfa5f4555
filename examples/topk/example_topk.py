# SPDX-License-Identifier: Apache-2.0
"""The k largest elements of every row with their indices, largest first: how a mixture of experts routes its tokens.

A block holds whole rows in registers and takes the largest k times. Of equal elements the first one counts as larger.

`python example_topk.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1, 2])
def topk(M, N, k, block_M=32, threads=128, dtype="float32"):
    """A kernel X (M, N) -> (values (M, k), indices (M, k) int32)."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        values: T.Tensor((M, k), dtype),
        indices: T.Tensor((M, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            X_local = T.alloc_fragment((block_M, N), dtype)
            places = T.alloc_fragment((block_M, N), "int32")
            largest = T.alloc_fragment((block_M,), dtype)
            place = T.alloc_fragment((block_M,), "int32")
            T.copy(X[bm * block_M, 0], X_local)
            for n in T.serial(k):
                T.reduce_max(X_local, largest, dim=1)
                for i, j in T.Parallel(block_M, N):
                    places[i, j] = T.if_then_else(X_local[i, j] == largest[i], j, N)
                T.reduce_min(places, place, dim=1)
                for i, j in T.Parallel(block_M, N):
                    X_local[i, j] = T.if_then_else(j == place[i], -T.infinity(dtype), X_local[i, j])
                for i in T.Parallel(block_M):
                    if bm * block_M + i < M:
                        values[bm * block_M + i, n] = largest[i]
                        indices[bm * block_M + i, n] = place[i]

    return main


def make_input(M: int, N: int, device: str = "cpu") -> torch.Tensor:
    """Rows with many equal elements."""
    return torch.randint(-N, N, (M, N), device=device).float()


def reference(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    ordered, indices = x.sort(dim=1, descending=True, stable=True)
    return ordered[:, :k], indices[:, :k].int()


def check(kernel: tilelang.JITKernel, x: torch.Tensor, k: int) -> None:
    for given, wanted in zip(kernel(x), reference(x, k), strict=True):
        torch.testing.assert_close(given, wanted, rtol=0, atol=0)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--M", type=int, default=65536 if on_gpu else 64)
    parser.add_argument("--N", type=int, default=128)
    parser.add_argument("--k", type=int, default=6)
    args = parser.parse_args()

    x = make_input(args.M, args.N, device="cuda" if on_gpu else "cpu")
    kernel = topk(args.M, args.N, args.k)
    check(kernel, x, args.k)
    print("values and indices are exact")
    if on_gpu:
        for name, call in {"top-k": lambda: kernel(x), "torch": lambda: x.topk(args.k)}.items():
            print(f"{name:6s} {tilelang.profiler.do_bench(call):8.4f} ms")


if __name__ == "__main__":
    main()
