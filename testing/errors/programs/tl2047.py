# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.tir_builder.eager import learn_shapes


def main(A: T.Tensor((8,), "float32"), value):
    with T.Kernel(1, threads=32):
        T.fill(A, value)


learn_shapes(main, {})
