# SPDX-License-Identifier: Apache-2.0
"""Shifts on 8/16-bit integers wrap at their own width.

Guards against: silent wrong result (C integer promotion: (b << 4) >> 4 returned b).
Right behaviour: numpy semantics at the declared width (nibble extraction, sign extension).
"""

import numpy as np
import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(N, dtype, k, threads):
    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype)):
        with T.Kernel(1, threads=threads):
            for i in T.Parallel(N):
                B[i] = (A[i] << T.cast(k, dtype)) >> T.cast(k, dtype)

    return main


PROGRAMS = [(make, (256, d, k, t)) for d, k in (("uint8", 4), ("int8", 4), ("int16", 12)) for t in (64, 256)]


def run(device="cuda"):
    for f, args in PROGRAMS:
        n, d, k, _ = args
        a = np.arange(n).astype(d)
        kk = np.array(k, dtype=d)
        want = np.right_shift(np.left_shift(a, kk), kk)
        got = f(*args)(torch.from_numpy(a).to(device)).cpu().numpy()
        assert (got == want).all(), args
