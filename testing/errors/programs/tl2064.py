# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8, 128), "float32")):
    with T.Kernel(4, threads=128) as b:
        s = T.alloc_fragment((8,), "float32")
        T.clear(s)
        for i, j in T.Parallel(8, 128):
            s[i] += A[i, j]
