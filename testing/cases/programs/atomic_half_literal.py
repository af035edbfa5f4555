# SPDX-License-Identifier: Apache-2.0
"""atomic_max / atomic_min / atomic_add on half buffers with a float literal or float32 value.

Guards against: the low half of float32 bits stored as a half.
Right behaviour: the value is converted to the buffer's type first.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def make(N, dtype):
    @T.prim_func
    def main(
        A: T.Tensor((N,), "float32"), Mx: T.Tensor((N,), dtype), Mn: T.Tensor((N,), dtype), Sm: T.Tensor((N,), dtype)
    ):
        with T.Kernel(4, threads=128):
            for i in T.Parallel(N):
                T.atomic_max(Mx[i], A[i])
                T.atomic_min(Mn[i], -42.0)
                T.atomic_add(Sm[i], T.cast(A[i], dtype))

    return main


PROGRAMS = [(make, (256, d)) for d in ("float16", "bfloat16", "float32")]


def run(device="cuda"):
    for f, args in PROGRAMS:
        d = getattr(torch, args[1])
        a = torch.div(torch.arange(-128, 128, device=device), 8, rounding_mode="floor").float()
        mx, mn, sm = (torch.zeros(256, device=device, dtype=d) for _ in range(3))
        f(*args)(a, mx, mn, sm)
        assert torch.equal(mx, a.clamp(min=0).to(d)), args
        assert torch.equal(mn, torch.full_like(mn, -42.0)), args
        assert torch.equal(sm, (a * 4).to(d)), args
