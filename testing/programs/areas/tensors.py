# SPDX-License-Identifier: Apache-2.0
"""Tensors whose elements lie in an order of the program's own."""

from __future__ import annotations

import torch
from witness import changed, out, program, randn, refused, run

import tilelang.language as T


@program(shape=((16, 24), (20, 8)))
def tensor_with_a_layout(shape):
    """Sums of tiles go to one tensor in columns of 8, and to one in groups of 4 rows; a second launch reads them."""
    M, N = shape

    @T.prim_func
    def main(
        X: T.Tensor((M, N), "float32"), A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32"),
        Y: T.Tensor((M, N), "float32"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(M, 12), N // 8, threads=64) as (bx, by):
            f = T.alloc_fragment((12, 8), "float32")
            s = T.alloc_shared((12, 8), "float32")
            T.annotate_layout(
                {A: T.Layout(A.shape, lambda i, j: [j // 8, i, j % 8]), B: lambda i, j: (i // 4, j, i % 4)}
            )
            T.copy(X[bx * 12, by * 8], f)
            T.copy(f, A[bx * 12, by * 8])
            T.copy(f, s)
            T.atomic_add(B[bx * 12, by * 8], s, use_tma=True)
        with T.Kernel(1, threads=64):
            T.annotate_layout({B: lambda i, j: (i // 4, j, i % 4)})
            for i, j in T.Parallel(M, N):
                Y[i, j] = B[i, j] * 2 + B[i + 5, j]

    x = randn(M, N)
    columns = x.reshape(M, N // 8, 8).transpose(0, 1).reshape(M, N)
    groups = x.reshape(M // 4, 4, N).transpose(1, 2).reshape(M, N)
    shifted = torch.cat([x[5:], torch.zeros(5, N)])
    return run(main, x, out(columns), changed(torch.zeros(M, N), groups), out(x * 2 + shifted))


@program(
    layout=(lambda i, j: [j // 7, i, j % 7], lambda i, j: i + j, lambda i, j: [j // 2, i], lambda i, j: i * 7 % 16)
)
def refuses_a_layout_that_is_no_order(layout):
    """Places that do not fill the memory of the tensor, or that two elements share."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((16, 24), "float32")):
            with T.Kernel(1, threads=32):
                T.annotate_layout({A: layout})

        return main

    return refused(make, "the layout of A does not fit")


@program()
def refuses_tile_operations_in_front_of_the_layout():
    """What was written for row-major order before the layout is known."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((16, 24), "float32")):
            with T.Kernel(1, threads=32):
                s = T.alloc_shared((16, 24), "float32")
                T.copy(A, s)
                T.annotate_layout({A: lambda i, j: (j, i)})

        return main

    return refused(make, "T.copy on A", "annotate the layout first")
