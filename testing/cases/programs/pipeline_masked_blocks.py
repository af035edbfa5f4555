# SPDX-License-Identifier: Apache-2.0
"""Block-sparse GEMM: the pipelined body is skipped when a mask read from global memory is zero.

Guards against: compiler crash / hang (condition loaded from a buffer inside a pipelined loop).
Right behaviour: C = sum over k with mask[k] != 0 of A_k @ B_k.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(nk, BK, stages):
    @T.prim_func
    def main(
        A: T.Tensor((64, nk * BK), "float16"),
        B: T.Tensor((nk * BK, 64), "float16"),
        Mask: T.Tensor((nk,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, BK), "float16")
            Bs = T.alloc_shared((BK, 64), "float16")
            Cl = T.alloc_fragment((64, 64), "float32")
            T.clear(Cl)
            for k in T.Pipelined(nk, num_stages=stages):
                if Mask[k] != 0:
                    T.copy(A[0, k * BK], As)
                    T.copy(B[k * BK, 0], Bs)
                    T.gemm(As, Bs, Cl)
            T.copy(Cl, C)

    return main


PROGRAMS = [(make, (8, 32, s)) for s in (0, 1, 3)]


def run(device="cuda"):
    a = torch.randn(64, 256, device=device).half()
    b = torch.randn(256, 64, device=device).half()
    for bits in ([1, 0, 1, 1, 0, 0, 1, 0], [0] * 8, [1] * 8, [0, 0, 0, 0, 0, 0, 0, 1]):
        m = torch.tensor(bits, dtype=torch.int32, device=device)
        keep = m.repeat_interleave(32).float()
        want = (a.float() * keep) @ b.float()
        for f, args in PROGRAMS:
            torch.testing.assert_close(f(*args)(a, b, m), want, rtol=1e-2, atol=1e-1)
