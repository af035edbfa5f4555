# SPDX-License-Identifier: Apache-2.0
# Fifteen groups of threads, each of which needs a barrier of its own.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):  # noqa: C901
    with T.Kernel(1, threads=512):
        S = T.alloc_shared((16, 64), "float32")
        tx = T.get_thread_binding()
        for group in T.unroll(1):
            pass
        if tx >= 32:
            S[1, tx % 64] = A[1, tx % 64]
            A[1, tx % 64] = S[1, 63 - tx % 64]
        if tx >= 64:
            S[2, tx % 64] = A[2, tx % 64]
            A[2, tx % 64] = S[2, 63 - tx % 64]
        if tx >= 96:
            S[3, tx % 64] = A[3, tx % 64]
            A[3, tx % 64] = S[3, 63 - tx % 64]
        if tx >= 128:
            S[4, tx % 64] = A[4, tx % 64]
            A[4, tx % 64] = S[4, 63 - tx % 64]
        if tx >= 160:
            S[5, tx % 64] = A[5, tx % 64]
            A[5, tx % 64] = S[5, 63 - tx % 64]
        if tx >= 192:
            S[6, tx % 64] = A[6, tx % 64]
            A[6, tx % 64] = S[6, 63 - tx % 64]
        if tx >= 224:
            S[7, tx % 64] = A[7, tx % 64]
            A[7, tx % 64] = S[7, 63 - tx % 64]
        if tx >= 256:
            S[8, tx % 64] = A[8, tx % 64]
            A[8, tx % 64] = S[8, 63 - tx % 64]
        if tx >= 288:
            S[9, tx % 64] = A[9, tx % 64]
            A[9, tx % 64] = S[9, 63 - tx % 64]
        if tx >= 320:
            S[10, tx % 64] = A[10, tx % 64]
            A[10, tx % 64] = S[10, 63 - tx % 64]
        if tx >= 352:
            S[11, tx % 64] = A[11, tx % 64]
            A[11, tx % 64] = S[11, 63 - tx % 64]
        if tx >= 384:
            S[12, tx % 64] = A[12, tx % 64]
            A[12, tx % 64] = S[12, 63 - tx % 64]
        if tx >= 416:
            S[13, tx % 64] = A[13, tx % 64]
            A[13, tx % 64] = S[13, 63 - tx % 64]
        if tx >= 448:
            S[14, tx % 64] = A[14, tx % 64]
            A[14, tx % 64] = S[14, 63 - tx % 64]
        if tx >= 480:
            S[15, tx % 64] = A[15, tx % 64]
            A[15, tx % 64] = S[15, 63 - tx % 64]


lower(main, "sm_90a")
