# SPDX-License-Identifier: Apache-2.0
# There is no such barrier.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        T.sync_threads(16, 128)
        A[tx, 0] = 1.0


lower(main, "sm_90a")
