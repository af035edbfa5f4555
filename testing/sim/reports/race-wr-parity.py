# SPDX-License-Identifier: Apache-2.0
# The wait is for the phase before the first one, which counts as complete.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float32")
        ready = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        T.tma_copy(A, S, barrier=ready)
        if tx == 0:
            T.mbarrier_arrive(ready)
        T.mbarrier_wait_parity(ready, 1)
        for i, j in T.Parallel(64, 64):
            O[i, j] = S[i, j]


OPTIONS = {"policy": "adv-last"}
