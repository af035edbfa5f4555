# SPDX-License-Identifier: Apache-2.0
# Threads spin on a flag that nobody sets.
import tilelang.language as T


@T.prim_func
def main(F: T.Tensor((1,), "int32"), O: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        rounds = T.alloc_local((1,), "int32")
        rounds[0] = 0
        while F[0] == 0:
            rounds[0] = rounds[0] + 1
        O[tx] = 1.0


ARGUMENTS = {"F": 0}
