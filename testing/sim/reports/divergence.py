# SPDX-License-Identifier: Apache-2.0
# A barrier of the block in a branch that some threads of a warp take.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32"), n: T.int32):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        if tx < n:
            T.sync_threads(1, 128)
        O[tx] = A[tx]


ARGUMENTS = {"n": 40}
