# SPDX-License-Identifier: Apache-2.0
# A copy announces its own bytes; the program announces them once more.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float32")
        ready = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        if tx == 0:
            T.mbarrier_arrive_expect_tx(ready, 64 * 64 * 4)
        T.tma_copy(A, S, barrier=ready)
        T.mbarrier_wait_parity(ready, 0)
        for i, j in T.Parallel(64, 64):
            O[i, j] = S[i, j]
