# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


def pick(flag):
    if flag:
        return 1
    return 0


@T.prim_func
def main(A: T.Tensor((8,), "float32"), n: T.int32):
    with T.Kernel(1, threads=32) as b:
        A[0] = pick(n > 3)
