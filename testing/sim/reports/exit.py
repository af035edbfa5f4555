# SPDX-License-Identifier: Apache-2.0
# The block ends while the copy engine still reads its tile.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float32")
        T.copy(A, S)
        T.tma_copy(S, O)
        T.tma_store_arrive()
