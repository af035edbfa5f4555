# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        for i in [0, 1, 2, 3] * 10000:
            A[i] = i
