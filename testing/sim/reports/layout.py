# SPDX-License-Identifier: Apache-2.0
# The descriptors have another swizzle than the copy engine wrote the tiles with.
from damage import static

import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        As = T.alloc_shared((64, 64), "float16")
        Bs = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        full = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        T.tma_copy(A, As, barrier=full)
        T.tma_copy(B, Bs, barrier=full)
        if tx == 0:
            T.mbarrier_arrive(full)
        T.barrier_wait(full, 0)
        T.gemm(As, Bs, acc, transpose_B=True, clear_accum=True)
        T.copy(acc, C)


def damage(device):
    return static(device, "wgmma_desc", "swizzle", 64)
