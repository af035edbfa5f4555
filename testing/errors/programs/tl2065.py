# SPDX-License-Identifier: Apache-2.0
import tilelang
import tilelang.language as T


@tilelang.jit(target="cpu")
def sums(A: T.Tensor((4, 64), "float32")):
    O = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        for k in T.serial(4):
            for i in T.Parallel(64):
                O[i] += A[k, i]
    return O


sums.compile()
