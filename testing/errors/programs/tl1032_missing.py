# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32")):
    with T.Kernel(4, threads=128) as b:
        S = T.alloc_shared((128,), "float32")
        T.tma_copy(A, S)
