# SPDX-License-Identifier: Apache-2.0
"""Element offsets above 2^31, computed from the block index and as a constant.

Guards against: indices that wrap at 32 bits.
Right behaviour: 64-bit addressing where the extent needs it.
"""

import torch

import tilelang
import tilelang.language as T

ROWS, COLS = 140000, 16384  # 2.29e9 int8 elements


@tilelang.jit
def make(R, C):
    @T.prim_func
    def main(A: T.Tensor((R, C), "int8"), O: T.Tensor((R,), "int8"), Last: T.Tensor((1,), "int8")):
        with T.Kernel(T.ceildiv(R, 128), threads=128) as b:
            for i in T.Parallel(128):
                if b * 128 + i < R:
                    O[b * 128 + i] = A[b * 128 + i, C - 1]
            if b == 0:
                for i in T.Parallel(1):
                    Last[i] = A[R - 1, C - 1]

    return main


PROGRAMS = [(make, (ROWS, COLS))]


def run(device="cuda"):
    a = torch.zeros(ROWS, COLS, dtype=torch.int8, device=device)
    a[:, -1] = (torch.arange(ROWS, device=device) % 100).to(torch.int8)
    o = torch.full((ROWS,), -1, dtype=torch.int8, device=device)
    last = torch.full((1,), -1, dtype=torch.int8, device=device)
    make(ROWS, COLS)(a, o, last)
    assert torch.equal(o, a[:, -1])
    assert int(last) == (ROWS - 1) % 100
