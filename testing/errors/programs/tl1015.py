# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.StridedTensor((8, 4), (4,), "float32")):
    with T.Kernel(1, threads=32):
        T.clear(A)
