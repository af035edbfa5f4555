# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((4,), "int32")):
    with T.Kernel(4, threads=32) as b:
        A[b] = b
        T.sync_grid()


lower(main, "sm_90a", CompileOptions(tile_queue=False))
