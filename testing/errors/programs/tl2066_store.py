# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32")):
    with T.Kernel(4, threads=128) as b:
        bar = T.alloc_barrier(128)
        bar[0] = 5
