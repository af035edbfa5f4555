# SPDX-License-Identifier: Apache-2.0
# A program for a device with more shared memory.
import tilelang.language as T
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((128, 256), "float32")
        for i, j in T.Parallel(128, 256):
            S[i, j] = 1.0
        for i, j in T.Parallel(128, 64):
            A[i, j] = S[i, j]


lower_to_cuda(lower(main, "sm_90a"), ARCHS["sm_89"])
