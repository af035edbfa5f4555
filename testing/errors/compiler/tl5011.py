# SPDX-License-Identifier: Apache-2.0
# The loads of a pipeline bring twice the bytes that are announced; the compiler itself announces the right number.
from damage import operand

import tilelang.language as T
from tilelang.target.arch import ARCHS
from tilelang.transform.check_protocol import check_protocol
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        As = T.alloc_shared((64, 64), "float16")
        Bs = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.clear(acc)
        for k in T.Pipelined(4, num_stages=2):
            T.copy(A[0, k * 64], As)
            T.copy(B[k * 64, 0], Bs)
            T.gemm(As, Bs, acc)
        T.copy(acc, C)


check_protocol(operand(lower(main, "sm_90a"), "mbar_expect_tx", "bytes", lambda n: n // 2), ARCHS["sm_90a"])
