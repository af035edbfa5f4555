# SPDX-License-Identifier: Apache-2.0
"""Arguments whose rank, dtype, static extent or shared symbolic extent do not fit must be refused.

Guards against: accepts invalid (launches and reads the wrong memory).
Right behaviour: Python exception before launch that names the argument.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def make():
    n = T.symbolic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n, 4), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as b:
            for i in T.Parallel(128):
                if b * 128 + i < n:
                    for c in T.serial(4):
                        C[b * 128 + i, c] = A[b * 128 + i] + B[b * 128 + i]

    return main


PROGRAMS = [(make, ())]


def run(device="cuda"):
    k = make()
    f = lambda *s, dt=torch.float32: torch.ones(*s, device=device, dtype=dt)
    c = f(200, 4)
    k(f(200), f(200), c)
    assert torch.equal(c, torch.full_like(c, 2.0))
    bad = {
        "rank": (f(1, 200), f(200), f(200, 4)),
        "symbol": (f(200), f(100), f(200, 4)),
        "extent": (f(200), f(200), f(200, 3)),
        "dtype": (f(200), f(200, dt=torch.float16), f(200, 4)),
    }
    if device != "cpu":
        bad["device"] = (torch.ones(200), f(200), f(200, 4))
    for name, args in bad.items():
        try:
            k(*args)
        except Exception:
            continue
        raise AssertionError(f"bad {name} was accepted")
