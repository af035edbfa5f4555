# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.tir_builder.eager import learn_shapes


def main(A):
    M = T.const("M")
    A: T.Tensor((M,), "float32")
    B: T.Tensor((M,), "float32")
    with T.Kernel(1, threads=32):
        T.copy(A, B)


learn_shapes(main, {})
