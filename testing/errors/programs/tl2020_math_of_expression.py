# SPDX-License-Identifier: Apache-2.0
import math

import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32")):
    with T.Kernel(4, threads=128) as b:
        A[b] = math.exp(A[b] + 1)
