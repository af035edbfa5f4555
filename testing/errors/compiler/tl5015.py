# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((4, 64), "float32"), O: T.Tensor((4, 64), "float32")):
    with T.Kernel(1, threads=64):
        x = T.alloc_fragment((64,), "float32")
        for k in T.Pipelined(4, order=[1, 0], stage=[0, 0]):
            T.copy(A[k, :], x)
            T.copy(x, O[k, :])


lower(main, "sm_90a")
