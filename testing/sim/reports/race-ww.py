# SPDX-License-Identifier: Apache-2.0
# Both warpgroups write the tile.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=256):
        S = T.alloc_shared((128,), "float32")
        ready = T.alloc_barrier(256)
        tx = T.get_thread_binding()
        with T.ws(0):
            S[tx] = A[tx]
        with T.ws(1):
            S[tx - 128] = A[tx - 128] * 2.0
        T.mbarrier_arrive(ready)
        T.barrier_wait(ready, 0)
        with T.ws(0):
            O[tx] = S[tx]
