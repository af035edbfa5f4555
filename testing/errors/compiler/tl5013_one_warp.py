# SPDX-License-Identifier: Apache-2.0
# Lanes of one warp can wait for each other, but this is a barrier of the block.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((128,), "float32")
        tx = T.get_thread_binding()
        S[tx] = A[tx]
        if tx < 20:
            T.sync_threads()
        B[tx] = S[127 - tx]


lower(main, "sm_90a")
