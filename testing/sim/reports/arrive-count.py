# SPDX-License-Identifier: Apache-2.0
# The barrier counts one arrival, and two threads arrive while the bytes of its phase are on their way.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float32")
        full = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        T.tma_copy(A, S, barrier=full)
        if tx == 0:
            T.mbarrier_arrive(full)
        if tx == 32:
            T.mbarrier_arrive(full)
        T.barrier_wait(full, 0)
        for i, j in T.Parallel(64, 64):
            O[i, j] = S[j, i]
