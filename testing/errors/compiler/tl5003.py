# SPDX-License-Identifier: Apache-2.0
# Rows are no multiple of 16 bytes apart.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.StridedTensor((64, 64), (65, 1), "float32"), O: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float32")
        full = T.alloc_barrier(1)
        T.tma_copy(A, S, barrier=full)
        T.mbarrier_arrive(full)
        T.barrier_wait(full, 0)
        T.copy(S, O)


lower(main, "sm_90a")
