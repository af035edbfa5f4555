# SPDX-License-Identifier: Apache-2.0
# Every second thread, in a loop that all of them run.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        if tx % 2 == 0:
            for k in T.serial(4):
                A[tx] = A[tx] + k
                T.sync_threads()


lower(main, "sm_90a")
