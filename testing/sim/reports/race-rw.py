# SPDX-License-Identifier: Apache-2.0
# The second warpgroup gives the tile back before it has read it.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=256):
        S = T.alloc_shared((128,), "float32")
        ready = T.alloc_barrier(128)
        free = T.alloc_barrier(128)
        tx = T.get_thread_binding()
        with T.ws(0):
            S[tx] = A[tx]
            T.mbarrier_arrive(ready)
            T.barrier_wait(free, 0)
            S[tx] = 0.0
        with T.ws(1):
            T.barrier_wait(ready, 0)
            T.mbarrier_arrive(free)
            O[tx - 128] = S[255 - tx]
