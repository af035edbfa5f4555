# SPDX-License-Identifier: Apache-2.0
"""Cross-thread exchange inside `if tx < 48` of a 64-thread block.

Guards against: race (the barrier the planner wanted was dropped because 48 is not a warp multiple).
Right behaviour: correct value, or a compile-time error that names the guard - never a silent race.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(n, threads):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), O: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((n,), "float32")
            tx = T.get_thread_binding()
            if tx < n:
                S[tx] = A[tx] * 2.0
                O[tx] = S[n - 1 - tx]

    return main


PROGRAMS = [(make, (48, 64)), (make, (32, 64)), (make, (64, 64))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        a = torch.randn(args[0], device=device)
        try:
            k = f(*args)
        except Exception as e:
            assert args[0] % 32 != 0, "a warp-multiple guard must compile"
            assert "sync" in str(e).lower() or "barrier" in str(e).lower() or "thread" in str(e).lower(), e
            continue
        for _ in range(50):
            torch.testing.assert_close(k(a), (a * 2).flip(0))
