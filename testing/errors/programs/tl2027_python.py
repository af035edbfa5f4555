# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        s = 16
        while s >= 0:
            A[0] += T.shfl_xor(A[0], 1)
            s //= 2
