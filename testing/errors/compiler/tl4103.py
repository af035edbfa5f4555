# SPDX-License-Identifier: Apache-2.0
# The extent is a value of the run.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32"), n: T.int32):
    with T.Kernel(1, threads=128):
        X = T.alloc_fragment((64,), "float32")
        for i in T.Parallel(n):
            X[i] = A[i, 0]


lower(main, "sm_90a")
