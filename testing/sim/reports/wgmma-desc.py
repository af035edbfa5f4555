# SPDX-License-Identifier: Apache-2.0
# The warps of a warpgroup read the operand at different places.
from damage import operand
from tvm import tirx

import tilelang.language as T
from tilelang.ir.stmts import launches


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
    thread = launches(device)[0].axis("threadIdx.x")
    return operand(device, "wgmma_ss", "b", lambda b: b + tirx.Cast("uint64", tirx.truncdiv(thread, 64) * 2))
