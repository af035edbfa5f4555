# SPDX-License-Identifier: Apache-2.0
# The last thread writes behind the tile.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((128,), "float32")
        R = T.alloc_shared((128,), "float32")
        tx = T.get_thread_binding()
        step = T.alloc_var("int32", init=1)
        S[tx + step] = A[tx]
        R[tx] = A[tx]
        T.sync_threads()
        O[tx] = R[127 - tx]
