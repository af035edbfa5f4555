# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(B: T.Tensor((8, 63), "int4")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((8, 63), "int4")
        T.copy(B, S)


lower(main, "sm_90a")
