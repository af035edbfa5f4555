# SPDX-License-Identifier: Apache-2.0
"""One staged A tile feeds two GEMMs; next iteration overwrites it (no pipelining).

Guards against: race (loop-back barrier / tensor-core wait missing before the overwrite).
Right behaviour: C0 = A @ B0 and C1 = A @ B1, every run.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-2, -1])
def make(M, N, K, BK, stages):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B0: T.Tensor((K, N), "float16"),
        B1: T.Tensor((K, N), "float16"),
        C0: T.Tensor((M, N), "float32"),
        C1: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, BK), "float16")
            Bs = T.alloc_shared((BK, N), "float16")
            Bt = T.alloc_shared((BK, N), "float16")
            c0 = T.alloc_fragment((M, N), "float32")
            c1 = T.alloc_fragment((M, N), "float32")
            T.clear(c0)
            T.clear(c1)
            for k in T.Pipelined(K // BK, num_stages=stages):
                T.copy(A[0, k * BK], As)
                T.copy(B0[k * BK, 0], Bs)
                T.gemm(As, Bs, c0)
                T.copy(B1[k * BK, 0], Bt)
                T.gemm(As, Bt, c1)
            T.copy(c0, C0)
            T.copy(c1, C1)

    return main


PROGRAMS = [(make, (64, 64, 1024, 32, s)) for s in (0, 1, 3)]


def run(device="cuda"):
    a = torch.randn(64, 1024, device=device).half()
    b0 = torch.randn(1024, 64, device=device).half()
    b1 = torch.randn(1024, 64, device=device).half()
    for f, args in PROGRAMS:
        k = f(*args)
        for _ in range(20):
            c0, c1 = k(a, b0, b1)
            torch.testing.assert_close(c0, a.float() @ b0.float(), rtol=1e-2, atol=2e-1)
            torch.testing.assert_close(c1, a.float() @ b1.float(), rtol=1e-2, atol=2e-1)
