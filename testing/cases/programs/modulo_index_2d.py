# SPDX-License-Identifier: Apache-2.0
"""Table lookup B[j % K] inside a fused 2-D parallel loop, K not dividing the tile width.

Guards against: silent wrong result ((i*N + j) % K folded as if it were j % K).
Right behaviour: y[i, j] = a[i, j] + b[j % K].
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(M, N, K):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((K,), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(M, N):
                Y[i, j] = A[i, j] + B[j % K]

    return main


PROGRAMS = [(make, (32, 32, k)) for k in (8, 12, 24, 5, 31)] + [(make, (16, 48, 20))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        M, N, K = args
        a = torch.randn(M, N, device=device)
        b = torch.randn(K, device=device)
        want = a + b[torch.arange(N, device=device) % K]
        torch.testing.assert_close(f(*args)(a, b), want)
