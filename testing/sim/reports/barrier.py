# SPDX-License-Identifier: Apache-2.0
# The mbarrier is never initialised.
from damage import without

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


def damage(device):
    return without(device, "mbar_init")
