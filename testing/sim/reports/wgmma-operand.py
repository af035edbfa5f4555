# SPDX-License-Identifier: Apache-2.0
# The next tile overwrites an operand while wgmma still reads it: the loop waits for the product too late.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((2, 64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=256):
        As = T.alloc_shared((64, 64), "float16")
        Bs = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        full = T.alloc_barrier(1)
        empty = T.alloc_barrier(128)
        tx = T.get_thread_binding()
        T.copy(B, Bs)
        if tx >= 128:
            for k in T.serial(2):
                T.barrier_wait(empty, k ^ 1)
                T.tma_copy(A[k, :, :], As, barrier=full)
                if tx == 128:
                    T.mbarrier_arrive(full)
        else:
            T.clear(acc)
            for k in T.serial(2):
                T.barrier_wait(full, k)
                T.wgmma_gemm(As, Bs, acc)
                T.barrier_arrive(empty)
            T.wait_wgmma(0)
            T.copy(acc, C)
