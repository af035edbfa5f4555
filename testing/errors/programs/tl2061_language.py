# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    with T.Kernel(ceildiv(8, 4), threads=32):  # noqa: F821
        T.clear(A)
