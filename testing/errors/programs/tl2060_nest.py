# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((2**30,), "int32")):
    with T.Kernel(1, threads=32) as b:
        for i in T.Parallel(2**30):
            A[i] = 1
