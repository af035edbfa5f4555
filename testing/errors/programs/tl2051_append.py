# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        seen = []
        for i in T.serial(8):
            seen.append(A[i])
        A[0] = len(seen)
