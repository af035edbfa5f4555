# SPDX-License-Identifier: Apache-2.0
"""Two pipelined loops in a row share their shared-memory tiles but ask for different depths.

Guards against: compiler crash on a valid program (layout inference sees two versions of one buffer).
Right behaviour: compiles; C = A0 @ B0 + A1 @ B1.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(K, BK, s0, s1):
    @T.prim_func
    def main(
        A0: T.Tensor((64, K), "float16"),
        B0: T.Tensor((K, 64), "float16"),
        A1: T.Tensor((64, K), "float16"),
        B1: T.Tensor((K, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, BK), "float16")
            Bs = T.alloc_shared((BK, 64), "float16")
            Cl = T.alloc_fragment((64, 64), "float32")
            T.clear(Cl)
            for k in T.Pipelined(K // BK, num_stages=s0):
                T.copy(A0[0, k * BK], As)
                T.copy(B0[k * BK, 0], Bs)
                T.gemm(As, Bs, Cl)
            for k in T.Pipelined(K // BK, num_stages=s1):
                T.copy(A1[0, k * BK], As)
                T.copy(B1[k * BK, 0], Bs)
                T.gemm(As, Bs, Cl)
            T.copy(Cl, C)

    return main


PROGRAMS = [(make, (256, 32, a, b)) for a, b in ((2, 2), (2, 4), (4, 2), (3, 1))]


def run(device="cuda"):
    t = [torch.randn(s, device=device).half() for s in ((64, 256), (256, 64), (64, 256), (256, 64))]
    want = t[0].float() @ t[1].float() + t[2].float() @ t[3].float()
    for f, args in PROGRAMS:
        torch.testing.assert_close(f(*args)(*t), want, rtol=1e-2, atol=2e-1)
