# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.macro
def advance(A):
    A[0] = A[0] + 1
    return A[0] > 4


@T.prim_func
def main(A: T.Tensor((8,), "float32"), n: T.int32):
    with T.Kernel(1, threads=32) as b:
        if n > 0 and advance(A):
            A[1] = 1
