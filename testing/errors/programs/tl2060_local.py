# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        F = T.alloc_local((1000, 1000), "float32")
        F[0, 0] = 1.0
