# SPDX-License-Identifier: Apache-2.0
"""Prefix sums: rectangular tiles along either axis, sub-regions, any block size, reverse.

Guards against: illegal access, wrong results on a sub-region, failures for 96 threads.
Right behaviour: torch.cumsum along dim (flip/cumsum/flip for reverse).
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(H, W, dim, threads, reverse):
    @T.prim_func
    def main(A: T.Tensor((H, W), "float32"), B: T.Tensor((H, W), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((H, W), "float32")
            T.copy(A, S)
            T.cumsum(S, dim=dim, reverse=reverse)
            T.copy(S, B)

    return main


@tilelang.jit(out_idx=[-1])
def make_sub(H, W, big, threads):
    @T.prim_func
    def main(A: T.Tensor((H, big), "float32"), B: T.Tensor((H, big), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((H, big), "float32")
            T.copy(A, S)
            T.cumsum(S[0:H, 0:W], dim=1)
            T.copy(S, B)

    return main


PROGRAMS = [
    (make, a)
    for a in (
        (32, 64, 0, 256, False),
        (64, 32, 0, 128, False),
        (32, 64, 1, 256, False),
        (16, 100, 1, 128, True),
        (32, 64, 1, 96, False),
    )
] + [(make_sub, (8, 48, 80, 128))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        if f is make:
            H, W, dim, _, rev = args
            a = torch.randn(H, W, device=device)
            want = a.flip(dim).cumsum(dim).flip(dim) if rev else a.cumsum(dim)
        else:
            H, W, big, _ = args
            a = torch.randn(H, big, device=device)
            want = a.clone()
            want[:, :W] = a[:, :W].cumsum(1)
        torch.testing.assert_close(f(*args)(a), want, rtol=1e-4, atol=1e-4)
