# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 8), "float32")):
    with T.Kernel(8, threads=32) as bx:
        tile = T.alloc_shared((8, 8), "float32")
        tile = A[bx * 8 : bx * 8 + 8, 0:8]
        T.clear(tile)
