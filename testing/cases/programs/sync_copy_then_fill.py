# SPDX-License-Identifier: Apache-2.0
"""Stage a row, overwrite a slice of it with a sentinel, then use it.

Guards against: race, fill lost (write-write conflict between different threads treated as same-thread).
Right behaviour: out[lo:hi] == sentinel, the rest is the input.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(n, lo, hi, threads):
    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), O: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((n,), "int32")
            T.copy(A, S)
            T.fill(S[lo:hi], -7)
            T.copy(S, O)

    return main


PROGRAMS = [(make, (128, 10, 74, 128)), (make, (128, 0, 64, 128)), (make, (1024, 37, 901, 128))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        n, lo, hi, _ = args
        a = torch.arange(1, n + 1, dtype=torch.int32, device=device)
        want = a.clone()
        want[lo:hi] = -7
        k = f(*args)
        for _ in range(50):
            assert torch.equal(k(a), want)
