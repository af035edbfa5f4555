# SPDX-License-Identifier: Apache-2.0
# The accumulator is read without waiting for the wgmma.
from damage import without

import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        As = T.alloc_shared((64, 64), "float16")
        Bs = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.copy(A, As)
        T.copy(B, Bs)
        T.gemm(As, Bs, acc, clear_accum=True)
        T.copy(acc, C)


def damage(device):
    return without(device, "wgmma_wait")
