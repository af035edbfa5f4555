# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8, 8), "float16")):
    with T.Kernel(4, 4) as bx:
        A[bx, 0] = 1
