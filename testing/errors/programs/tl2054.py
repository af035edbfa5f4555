# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


def clear(A):
    for i in T.serial(8):
        A[i] = 0


@T.prim_func
def main(A: T.Tensor((8,), "float32"), n: T.int32):
    with T.Kernel(1, threads=32) as b:
        clear(A)
