# SPDX-License-Identifier: Apache-2.0
# 96 threads arrive where 128 are counted.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        done = T.alloc_barrier(128)
        if tx < 96:
            T.mbarrier_arrive(done)
        T.barrier_wait(done, 0)
        A[tx, 0] = 1.0


lower(main, "sm_90a")
