# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8, 8), "float16")):
    with T.Kernel(1) as b:
        S = T.alloc_shared((3, 64, 8), "float16")
        S[..., b : b + 4] += 1
