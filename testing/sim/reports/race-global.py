# SPDX-License-Identifier: Apache-2.0
# Two blocks write different values to the same elements.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
    with T.Kernel(2, threads=64) as bx:
        tx = T.get_thread_binding()
        O[tx] = A[tx] + bx
