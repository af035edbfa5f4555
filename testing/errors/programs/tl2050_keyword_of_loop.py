# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8, 8), "float16")):
    with T.Kernel(1) as b:
        for k in T.Pipelined(4, num_stage=2):
            A[k, 0] = 1
