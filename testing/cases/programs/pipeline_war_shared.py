# SPDX-License-Identifier: Apache-2.0
"""Write-after-read across the back edge of a pipelined loop.

Guards against: silent wrong result (software pipelining).
Right behaviour: same value as num_stages=0, i.e. sum of rows 0..K-1.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(K, N, stages):
    @T.prim_func
    def main(A: T.Tensor((K + 1, N), "float32"), O: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((N,), "float32")
            acc = T.alloc_fragment((N,), "float32")
            T.clear(acc)
            T.copy(A[0, 0:N], S)
            for k in T.Pipelined(K, num_stages=stages):
                for i in T.Parallel(N):
                    acc[i] += S[i]
                T.copy(A[k + 1, 0:N], S)
            T.copy(acc, O)

    return main


PROGRAMS = [(make, (6, 128, s)) for s in (0, 2, 3)]


def run(device="cuda"):
    a = torch.randn(7, 128, device=device)
    want = a[:6].sum(0)
    for f, args in PROGRAMS:
        torch.testing.assert_close(f(*args)(a), want, rtol=1e-5, atol=1e-5)
