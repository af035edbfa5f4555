# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    for i in T.Parallel(8):
        A[i] = 0.0
