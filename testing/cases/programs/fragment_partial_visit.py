# SPDX-License-Identifier: Apache-2.0
"""Loops that touch only part of a fragment, with an offset.

Guards against: illegal memory access / wrong layout (no bounds predicate for the part not visited).
Right behaviour: rows 3..10 hold A, the other rows keep 1.0; the (4, 64) tile keeps its tail.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(R, N, off, n, threads):
    @T.prim_func
    def main(A: T.Tensor((n, N), "float32"), O: T.Tensor((R, N), "float32")):
        with T.Kernel(1, threads=threads):
            f = T.alloc_fragment((R, N), "float32")
            T.fill(f, 1.0)
            for i, j in T.Parallel(n, N):
                f[i + off, j] = A[i, j]
            T.copy(f, O)

    return main


@tilelang.jit(out_idx=[-1])
def make_small(threads):
    @T.prim_func
    def main(S: T.Tensor((8,), "float32"), D: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_fragment((8,), "float32")
            d = T.alloc_shared((4, 64), "float32")
            T.copy(S, s)
            T.clear(d)
            for j in T.Parallel(8):
                d[0, j] = s[j] + 1.0
            T.copy(d, D)

    return main


PROGRAMS = [(make, (16, 64, 3, 8, 128)), (make, (16, 64, 0, 5, 128)), (make_small, (128,))]


def run(device="cuda"):
    for f, args in PROGRAMS[:2]:
        R, N, off, n, _ = args
        a = torch.randn(n, N, device=device)
        want = torch.ones(R, N, device=device)
        want[off : off + n] = a
        torch.testing.assert_close(f(*args)(a), want)
    s = torch.randn(8, device=device)
    want = torch.zeros(4, 64, device=device)
    want[0, :8] = s + 1
    torch.testing.assert_close(make_small(128)(s), want)
