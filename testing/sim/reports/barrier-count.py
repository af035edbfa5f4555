# SPDX-License-Identifier: Apache-2.0
# The second warpgroup names the barrier with another number of threads.
import tilelang.language as T


@T.prim_func
def main(O: T.Tensor((384,), "float32")):
    with T.Kernel(1, threads=384):
        tx = T.get_thread_binding()
        with T.ws(0, 2):
            T.sync_threads(1, 384)
        with T.ws(1):
            T.sync_threads(1, 256)
        O[tx] = 1.0
