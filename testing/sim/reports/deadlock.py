# SPDX-License-Identifier: Apache-2.0
# The producer waits for the wrong phase of the empty slots, so that nobody ever starts.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((4, 64, 64), "float16"), O: T.Tensor((4, 64, 64), "float16")):
    with T.Kernel(1, threads=256):
        S = T.alloc_shared((2, 64, 64), "float16")
        full = T.alloc_barrier([1, 1])
        empty = T.alloc_barrier([128, 128])
        tx = T.get_thread_binding()
        if tx >= 128:
            for k in T.serial(4):
                T.mbarrier_wait_parity(empty[k % 2], k // 2)
                T.tma_copy(A[k, :, :], S[k % 2, :, :], barrier=full[k % 2])
                if tx == 128:
                    T.mbarrier_arrive(full[k % 2])
        else:
            for k in T.serial(4):
                T.barrier_wait(full[k % 2], k // 2)
                for i, j in T.Parallel(64, 64):
                    O[k, i, j] = S[k % 2, j, i]
                T.mbarrier_arrive(empty[k % 2])
