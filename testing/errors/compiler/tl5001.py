# SPDX-License-Identifier: Apache-2.0
# Threads 0 to 47 are no whole warps, so that no barrier can be theirs.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        if tx < 48:
            S[tx] = A[tx, 0]
            A[tx, 0] = S[tx + 1]


lower(main, "sm_90a")
