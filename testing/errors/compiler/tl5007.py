# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float32")
        full = T.alloc_barrier(1)
        T.tma_copy(A[:64, :], S, barrier=full)


lower(main, "sm_80")
