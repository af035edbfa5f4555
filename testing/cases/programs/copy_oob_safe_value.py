# SPDX-License-Identifier: Apache-2.0
"""A 60x60 tensor staged into a 64x64 tile: the outside must read 0, or the annotated safe value.

Guards against: silent wrong result (annotation ignored by whole-tile copies).
Right behaviour: outside = 0 without annotation, = -99 with it.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(n, B):
    @T.prim_func
    def main(A: T.Tensor((n, n), "int32"), O: T.Tensor((B, B), "int32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((B, B), "int32")
            T.copy(A[0:B, 0:B], S)
            T.copy(S, O)

    return main


@tilelang.jit(out_idx=[-1])
def make_safe(n, B, v):
    @T.prim_func
    def main(A: T.Tensor((n, n), "int32"), O: T.Tensor((B, B), "int32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((B, B), "int32")
            T.annotate_safe_value({A: v})
            T.copy(A[0:B, 0:B], S)
            T.copy(S, O)

    return main


PROGRAMS = [(make, (60, 64)), (make_safe, (60, 64, -99))]


def run(device="cuda"):
    a = torch.arange(1, 3601, dtype=torch.int32, device=device).view(60, 60)
    for f, args in PROGRAMS:
        want = torch.full((64, 64), args[2] if len(args) > 2 else 0, dtype=torch.int32, device=device)
        want[:60, :60] = a
        assert torch.equal(f(*args)(a), want), args
