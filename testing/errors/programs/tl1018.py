# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    M = T.const("M")
    with T.Kernel(M, threads=32):
        T.clear(A)
