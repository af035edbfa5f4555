# SPDX-License-Identifier: Apache-2.0
# An access out of its tile lands on an mbarrier.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32"), n: T.int32):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((128,), "float32")
        ready = T.alloc_barrier(128)
        tx = T.get_thread_binding()
        S[tx] = A[tx]
        if tx == 0:
            S[n] = 0.0
        T.mbarrier_arrive(ready)
        T.barrier_wait(ready, 0)
        O[tx] = S[127 - tx]


ARGUMENTS = {"n": 128}
