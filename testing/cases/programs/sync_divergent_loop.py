# SPDX-License-Identifier: Apache-2.0
"""Write-then-read through shared memory in a loop under a thread-dependent condition.

Guards against: race (in-loop barrier hoisted out of a divergent `if`).
Right behaviour: correct value or a clean compile-time rejection.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(n, iters):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), O: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=n):
            S = T.alloc_shared((n,), "float32")
            v = T.alloc_local((1,), "float32")
            tx = T.get_thread_binding()
            v[0] = A[tx]
            if tx % 4 == 0:
                for _ in T.serial(iters):
                    S[tx] = v[0]
                    v[0] = S[(tx + 4) % n] + 1.0
            O[tx] = v[0]

    return main


PROGRAMS = [(make, (128, 8))]


def run(device="cuda"):
    n, iters = PROGRAMS[0][1]
    a = torch.randn(n, device=device)
    want = a.clone()
    q = a[::4].clone()
    for _ in range(iters):
        q = torch.roll(q, -1) + 1.0
    want[::4] = q
    try:
        k = make(n, iters)
    except Exception as e:
        assert "Internal" not in type(e).__name__, f"must be a user-level error, got {type(e)}"
        return
    for _ in range(50):
        torch.testing.assert_close(k(a), want, rtol=1e-5, atol=1e-5)
