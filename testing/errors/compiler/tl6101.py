# SPDX-License-Identifier: Apache-2.0
# The cpu target has no threads that could wait.
import tilelang.language as T
from tilelang.codegen.cpu import build_cpu


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        done = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        A[tx, 0] = 1.0


build_cpu(main)
