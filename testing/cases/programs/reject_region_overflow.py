# SPDX-License-Identifier: Apache-2.0
"""A sliced fill whose start + length passes the end of the buffer must be rejected.

Guards against: accepts invalid (emits an out-of-bounds store over the neighbouring buffer).
Right behaviour: compile-time error naming the buffer, the slice 6:12 and the extent 8.
"""

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(n, lo, hi):
    @T.prim_func
    def main(O: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((n,), "int32")
            G = T.alloc_shared((n,), "int32")
            T.fill(S, 1)
            T.fill(G, 2)
            T.fill(S[lo:hi], 7)
            for i in T.Parallel(n):
                O[i] = S[i] + G[i]

    return main


PROGRAMS = [(make, (8, 6, 12))]


def run(device="cuda"):
    try:
        make(8, 6, 12)
    except Exception as e:
        assert "InternalError" not in type(e).__name__
        return
    raise AssertionError("slice 6:12 of an 8-element buffer was accepted")
