# SPDX-License-Identifier: Apache-2.0
"""Fill an int8 tile with a negative constant.

Guards against: silent wrong result (three of four packed lanes became -1).
Right behaviour: every element equals v for all v in [-128, 127].
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(M, N, v, dtype):
    @T.prim_func
    def main(O: T.Tensor((M, N), dtype)):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((M, N), dtype)
            T.fill(f, v)
            T.copy(f, O)

    return main


PROGRAMS = [(make, (32, 64, v, "int8")) for v in (-128, -7, -1, 0, 5, 127)] + [
    (make, (32, 64, -300, "int16")),
    (make, (32, 64, 200, "uint8")),
]


def run(device="cuda"):
    for f, args in PROGRAMS:
        M, N, v, d = args
        assert torch.equal(f(*args)(), torch.full((M, N), v, dtype=getattr(torch, d), device=device)), args
