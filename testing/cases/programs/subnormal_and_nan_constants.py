# SPDX-License-Identifier: Apache-2.0
"""Constants must reach the kernel unchanged: subnormals, inf, NaN; NaN goes through clamp/max.

Guards against: constants changed on their way, clamp that loses NaN.
Right behaviour: same bits as torch.full; NaN in gives NaN out (torch.clamp) - a documented choice if not.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(N, v, dtype):
    @T.prim_func
    def main(O: T.Tensor((N,), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                O[i] = T.cast(v, dtype)

    return main


@tilelang.jit(out_idx=[-1])
def make_clamp(N):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), O: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                O[i] = T.clamp(A[i], -2.0, 3.0)

    return main


PROGRAMS = [(make, (128, v, "float32")) for v in (1e-40, 1e-30, 3.4e38, 16777217.0)] + [(make_clamp, (128,))]


def run(device="cuda"):
    for f, args in PROGRAMS[:-1]:
        want = torch.full((128,), args[1], dtype=torch.float32, device=device)
        assert torch.equal(f(*args)().view(torch.int32), want.view(torch.int32)), args
    a = torch.linspace(-5, 5, 128, device=device)
    a[7] = float("nan")
    got, want = make_clamp(128)(a), a.clamp(-2, 3)
    assert torch.equal(got.isnan(), want.isnan()), "clamp dropped NaN"
    torch.testing.assert_close(got, want, equal_nan=True)
