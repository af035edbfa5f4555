# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "float32"), n: T.int32):
    with T.Kernel(1, threads=32) as b:
        T.tma_gather4(A, A)
