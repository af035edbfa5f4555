# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.macro
def store(A, value):
    A[0] = value


@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as b:
        store(A)
