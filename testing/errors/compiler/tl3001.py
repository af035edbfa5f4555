# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(B: T.Tensor((64,), "int4")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        B[tx] = T.cast(tx, "int4")


lower(main, "sm_90a")
