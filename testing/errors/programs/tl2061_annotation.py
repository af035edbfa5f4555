# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: "Matrix", B: T.Tensor((8,), "float32")):  # noqa: F821 - what it is about
    with T.Kernel(1, threads=32):
        B[0] = 1.0
