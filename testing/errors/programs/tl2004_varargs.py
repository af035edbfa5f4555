# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(*tensors: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32) as b:
        tensors[0][0] = 1
