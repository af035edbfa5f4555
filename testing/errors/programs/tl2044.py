# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.tir_builder.eager import bind_constants, learn_shapes


def main(A, B=None, scale=None):
    M, N = T.const("M, N")
    A: T.Tensor((M, M + N), "float32")
    with T.Kernel(1, threads=32):
        T.clear(A)


bind_constants(learn_shapes(main, {}), {"A": ((8, 12), (12, 1))})
