# SPDX-License-Identifier: Apache-2.0
# A loop over registers alone, whose condition stays true; the other warp waits for the one in it.
import tilelang.language as T


@T.prim_func
def main(O: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        v = T.alloc_var("int32", 1)
        if tx < 32:
            while v < 100:
                v = v * 2 % 64
        T.sync_threads()
        O[tx] = v


OPTIONS = {"seconds": 0.2}
