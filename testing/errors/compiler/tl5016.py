# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            B[i] = A[i] + T.cast(T.cast(A[i], "float6_e2m3fn"), "float32")


lower(main, "sm_90a")
