# SPDX-License-Identifier: Apache-2.0
# A register is read before anything is written to it.
import tilelang.language as T


@T.prim_func
def main(O: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        r = T.alloc_local((4,), "float32")
        tx = T.get_thread_binding()
        r[0] = 1.0
        O[tx] = r[0] + r[2]
