# SPDX-License-Identifier: Apache-2.0
# One warpgroup of two comes to a barrier of both.
import tilelang.language as T


@T.prim_func
def main(O: T.Tensor((256,), "float32"), n: T.int32):
    with T.Kernel(1, threads=256):
        tx = T.get_thread_binding()
        if tx < n:
            T.sync_threads(1, 256)
        O[tx] = 1.0


ARGUMENTS = {"n": 128}
