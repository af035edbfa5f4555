# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        match (A[0], 1):
            case (3, 1):
                A[1] = 1
            case _:
                A[1] = 2
