# SPDX-License-Identifier: Apache-2.0
# The tensor does not start at a multiple of 16 bytes.
import numpy as np

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
        T.barrier_wait(full, 0)
        for i, j in T.Parallel(64, 64):
            O[i, j] = S[j, i]


def arguments():
    return [np.ones(64 * 64 + 1, "float32")[1:].reshape(64, 64), np.zeros((64, 64), "float32")]
