# SPDX-License-Identifier: Apache-2.0
"""Persistent loop over output tiles when the tile count is no multiple of the group or wave size.

Guards against: silent wrong result (a band of output tiles never visited).
Right behaviour: every tile is written exactly once.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def make(tm, tn, sms):
    @T.prim_func
    def main(Cnt: T.Tensor((tm, tn), "int32")):
        with T.Kernel(sms, threads=32) as b:
            for bx, by in T.Persistent([tm, tn], sms, b):
                tx = T.get_thread_binding()
                if tx == 0:
                    T.atomic_add(Cnt[bx, by], 1)

    return main


PROGRAMS = [(make, (m, n, s)) for m, n, s in ((8, 8, 132), (5, 11, 7), (13, 9, 132), (16, 12, 10), (1, 1, 4))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        c = torch.zeros(args[0], args[1], dtype=torch.int32, device=device)
        f(*args)(c)
        assert bool((c == 1).all()), (args, c.tolist())
