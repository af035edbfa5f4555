# SPDX-License-Identifier: Apache-2.0
"""A pipelined GEMM whose K loop runs once, twice, or fewer times than num_stages.

Guards against: deadlock (warp-specialised producer/consumer barriers).
Right behaviour: terminates with A @ B for any trip count, including trip < num_stages.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(M, N, K, BM, BN, BK, stages, threads):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bx, by):
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


PROGRAMS = [(make, (128, 128, k, 64, 64, 64, s, 128)) for k in (64, 128, 192) for s in (1, 2, 4)]


def run(device="cuda"):
    for f, args in PROGRAMS:
        m, n, k = args[:3]
        a = torch.randn(m, k, device=device).half()
        b = torch.randn(k, n, device=device).half()
        torch.testing.assert_close(f(*args)(a, b), a.float() @ b.float(), rtol=1e-2, atol=1e-1)
