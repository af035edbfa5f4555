# SPDX-License-Identifier: Apache-2.0
"""Row reductions when the reduced dimension is spread over a non-power-of-two number of threads.

Guards against: silent wrong result (butterfly drops lanes): sum(1..48) gave 528, not 1176.
Right behaviour: exact sum / max / min for every width and block size.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-3, -2, -1])
def make(M, N, threads):
    @T.prim_func
    def main(
        A: T.Tensor((M, N), "float32"),
        S: T.Tensor((M,), "float32"),
        X: T.Tensor((M,), "float32"),
        L: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((M, N), "float32")
            s = T.alloc_fragment((M,), "float32")
            x = T.alloc_fragment((M,), "float32")
            m = T.alloc_fragment((M,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, s, dim=1)
            T.reduce_max(a, x, dim=1)
            T.reduce_min(a, m, dim=1)
            T.copy(s, S)
            T.copy(x, X)
            T.copy(m, L)

    return main


PROGRAMS = [(make, (1, 48, 48)), (make, (1, 96, 96)), (make, (4, 48, 64)), (make, (2, 80, 160)), (make, (1, 128, 128))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        M, N, _ = args
        a = torch.arange(1, M * N + 1, device=device).float().view(M, N)
        a[:, ::3] *= -1
        s, x, m = f(*args)(a)
        torch.testing.assert_close(s, a.sum(1))
        torch.testing.assert_close(x, a.amax(1))
        torch.testing.assert_close(m, a.amin(1))
