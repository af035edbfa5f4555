# SPDX-License-Identifier: Apache-2.0
"""Store a tile into a sub-region that starts one element in (no 16-byte alignment).

Guards against: crash at run time (illegal instruction: bulk tensor store chosen without an alignment check).
Right behaviour: fall back to plain stores; only the region changes.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def make(R, C, r0, c0, H, W, dtype):
    @T.prim_func
    def main(A: T.Tensor((H, W), dtype), B: T.Tensor((R, C), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((H, W), dtype)
            T.copy(A, S)
            T.copy(S, B[r0 : r0 + H, c0 : c0 + W])

    return main


PROGRAMS = [(make, (40, 64, 0, c0, 32, 32, "int32")) for c0 in (0, 1, 2, 4, 31)] + [
    (make, (40, 67, 3, 5, 32, 32, "int32"))
]


def run(device="cuda"):
    for f, args in PROGRAMS:
        R, C, r0, c0, H, W, d = args
        a = torch.arange(H * W, dtype=torch.int32, device=device).view(H, W)
        b = torch.full((R, C), -1, dtype=torch.int32, device=device)
        want = b.clone()
        want[r0 : r0 + H, c0 : c0 + W] = a
        f(*args)(a, b)
        assert torch.equal(b, want), args
