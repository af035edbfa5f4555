# SPDX-License-Identifier: Apache-2.0
# One of two arrivals, and nobody waits.
import tilelang.language as T


@T.prim_func
def main(O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=128):
        done = T.alloc_barrier(2)
        tx = T.get_thread_binding()
        O[tx] = 1.0
        if tx == 0:
            T.mbarrier_arrive(done)
