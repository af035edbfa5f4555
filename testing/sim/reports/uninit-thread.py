# SPDX-License-Identifier: Apache-2.0
# A variable is set by some threads and read by all.
import tilelang.language as T


@T.prim_func
def main(B: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        v = T.alloc_var("int32")
        if tx < 37:
            v = tx * 2
        B[tx] = v
