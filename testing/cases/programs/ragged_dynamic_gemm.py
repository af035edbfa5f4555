# SPDX-License-Identifier: Apache-2.0
"""GEMM with symbolic M and static N, K that are no multiples of the tile.

Guards against: wrong tail / crash (dynamic shapes; K tail; one compile for all M incl. M < tile).
Right behaviour: one compiled kernel for every M; zero-filled tails.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(N, K, BM, BN, BK, stages):
    M = T.symbolic("M")

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            As = T.alloc_shared((BM, BK), "float16")
            Bs = T.alloc_shared((BK, BN), "float16")
            Cl = T.alloc_fragment((BM, BN), "float32")
            T.clear(Cl)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(A[by * BM, k * BK], As)
                T.copy(B[k * BK, bx * BN], Bs)
                T.gemm(As, Bs, Cl)
            T.copy(Cl, C[by * BM, bx * BN])

    return main


PROGRAMS = [(make, (136, 200, 64, 64, 32, s)) for s in (0, 3)] + [(make, (72, 72, 64, 64, 64, 2))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        n, kk = args[:2]
        k = f(*args)
        b = torch.randn(kk, n, device=device).half()
        for m in (1, 17, 64, 65, 300):
            a = torch.randn(m, kk, device=device).half()
            torch.testing.assert_close(k(a, b), a.float() @ b.float(), rtol=1e-2, atol=1e-1)
