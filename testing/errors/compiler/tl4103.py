# SPDX-License-Identifier: Apache-2.0
# A layout of the program's own says which thread runs each iteration, and n is a value of the run.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128, 64), "float32"), n: T.int32):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(n, loop_layout=T.Fragment((64,), forward_thread_fn=lambda i: i)):
            B[0, i] = A[0, i]


lower(main, "sm_90a")
