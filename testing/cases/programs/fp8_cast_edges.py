# SPDX-License-Identifier: Apache-2.0
"""float32 -> fp8 conversions at the edges: inf, overflow, ties, subnormals, NaN.

Guards against: silent wrong result (e5m2: inf became 57344).
Right behaviour: e5m2 keeps inf and NaN as torch does; decode of all 256 codes is exact. (e4m3 overflow:
saturating or NaN is a documented choice, so only finite in-range values are compared.)
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(N, src, dst):
    @T.prim_func
    def main(A: T.Tensor((N,), src), B: T.Tensor((N,), dst)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                B[i] = T.cast(A[i], dst)

    return main


PROGRAMS = [
    (make, (256, "float32", "float8_e5m2")),
    (make, (256, "float32", "float8_e4m3fn")),
    (make, (256, "float8_e4m3fn", "float32")),
    (make, (256, "float8_e5m2", "float32")),
]


def run(device="cuda"):
    same = lambda g, w: torch.equal(torch.nan_to_num(g.float(), nan=12345.0), torch.nan_to_num(w.float(), nan=12345.0))
    inf = float("inf")
    edge = torch.tensor(
        [
            0.0,
            -0.0,
            inf,
            -inf,
            1e5,
            -1e5,
            65504.0,
            57344.0,
            61439.0,
            1e-7,
            3e-6,
            -2e-5,
            1.0,
            1.125,
            1.375,
            float("nan"),
        ],
        device=device,
    ).repeat(16)
    assert same(make(256, "float32", "float8_e5m2")(edge), edge.to(torch.float8_e5m2))
    fin = torch.linspace(-448, 448, 256, device=device)
    assert same(make(256, "float32", "float8_e4m3fn")(fin), fin.to(torch.float8_e4m3fn))
    codes = torch.arange(256, device=device).to(torch.uint8)
    for d in ("float8_e4m3fn", "float8_e5m2"):
        x = codes.view(getattr(torch, d))
        g, w = make(256, d, "float32")(x), x.float()
        ok = (g == w) | (g.isnan() & w.isnan())
        assert bool(ok.all()), d
