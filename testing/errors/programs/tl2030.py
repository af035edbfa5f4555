# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


count = 0


@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    global count
    with T.Kernel(1, threads=32):
        count = A[0]
