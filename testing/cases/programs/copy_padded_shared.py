# SPDX-License-Identifier: Apache-2.0
"""Shared tile with padding columns; only the unpadded part is copied in and out.

Guards against: silent wrong result (pitch of the padded tile ignored by the bulk copy).
Right behaviour: round trip, and per-element reads see the right row.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-2, -1])
def make(BM, BN, pad, dtype):
    @T.prim_func
    def main(A: T.Tensor((BM, BN), dtype), B: T.Tensor((BM, BN), dtype), R: T.Tensor((BN, BM), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((BM, BN + pad), dtype)
            T.copy(A, S[0:BM, 0:BN])
            T.copy(S[0:BM, 0:BN], B)
            for j, i in T.Parallel(BN, BM):
                R[j, i] = S[i, j]

    return main


PROGRAMS = [(make, (32, 64, p, "float32")) for p in (0, 1, 4, 8)] + [(make, (64, 64, 8, "float16"))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        a = torch.randn(args[0], args[1], device=device).to(getattr(torch, args[3]))
        b, r = f(*args)(a)
        assert torch.equal(b, a), args
        assert torch.equal(r, a.t()), args
