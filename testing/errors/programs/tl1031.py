# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=128) as b:
        S = T.alloc_shared((64,), "int32")
        T.copy(S[0:32], S[16:48])
