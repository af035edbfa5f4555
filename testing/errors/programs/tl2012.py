# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.macro
def first_positive(A):
    for i in T.serial(8):
        if A[i] > 0:
            return i
    return -1


@T.prim_func
def main(A: T.Tensor((8,), "float32"), n: T.int32):
    with T.Kernel(1, threads=32) as b:
        A[0] = first_positive(A)
