# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "float32"), n: T.int32):
    with T.Kernel(1, threads=32) as b:
        A_shared = T.alloc_shared((64, 32), "float16")
        B_shared = T.alloc_shared((64, 32), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.gemm(A_shared, B_shared, C_local)
