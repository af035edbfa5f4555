# SPDX-License-Identifier: Apache-2.0
# Half of the tile is never written.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64,), "float32"), O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((128,), "float32")
        tx = T.get_thread_binding()
        if tx < 64:
            S[tx] = A[tx]
        T.sync_threads()
        O[tx] = S[127 - tx]
