# SPDX-License-Identifier: Apache-2.0
"""Elementwise over a fragment whose width is larger than, and no multiple of, the thread count.

Guards against: compiler crash on a valid program ("no available layout found").
Right behaviour: pad/predicate and give x*2+1 for any width.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(M, N, threads):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=threads) as b:
            f = T.alloc_fragment((N,), "float32")
            for j in T.Parallel(N):
                f[j] = X[b, j]
            for j in T.Parallel(N):
                f[j] = f[j] * 2.0 + 1.0
            for j in T.Parallel(N):
                Y[b, j] = f[j]

    return main


PROGRAMS = [(make, (3, n, 128)) for n in (1, 7, 127, 128, 192, 229, 257, 1000)]


def run(device="cuda"):
    for f, args in PROGRAMS:
        x = torch.randn(args[0], args[1], device=device)
        torch.testing.assert_close(f(*args)(x), x * 2 + 1)
