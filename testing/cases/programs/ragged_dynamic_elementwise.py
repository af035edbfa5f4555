# SPDX-License-Identifier: Apache-2.0
"""Elementwise add with a symbolic length that is no multiple of the block or of the vector width.

Guards against: compiler crash on a valid program (vector width assumed from the symbolic extent).
Right behaviour: one compile serves every length; no out-of-bounds access.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(threads, dtype):
    N = T.symbolic("N")

    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype), C: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, threads), threads=threads) as b:
            for i in T.Parallel(threads):
                C[b * threads + i] = A[b * threads + i] + B[b * threads + i]

    return main


PROGRAMS = [(make, (256, "bfloat16")), (make, (128, "float32"))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        k = f(*args)
        for n in (1, 2, 7, 255, 256, 257, 4096, 10007):
            a = torch.randn(n, device=device).to(getattr(torch, args[1]))
            b = torch.randn(n, device=device).to(getattr(torch, args[1]))
            assert torch.equal(k(a, b), a + b), n
