# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=128) as b:
        F = T.alloc_fragment((8, 8), "float32")
        R = T.alloc_fragment((8,), "float32")
        T.reduce_sum(F, R, dim="x")
