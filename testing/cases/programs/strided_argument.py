# SPDX-License-Identifier: Apache-2.0
"""Passing a transposed / sliced tensor.

Guards against: needless .contiguous(), strides taken for others.
Right behaviour: T.Tensor rejects wrong strides with a message naming the argument; T.StridedTensor with
symbolic strides accepts them without a copy.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def make_dense(M, N):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(M, N):
                B[i, j] = A[i, j] + 1.0

    return main


@tilelang.jit
def make_strided(M, N):
    s0 = T.symbolic("s0")
    s1 = T.symbolic("s1")

    @T.prim_func
    def main(A: T.StridedTensor((M, N), (s0, s1), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(M, N):
                B[i, j] = A[i, j] + 1.0

    return main


PROGRAMS = [(make_dense, (32, 48)), (make_strided, (32, 48))]


def run(device="cuda"):
    M, N = 32, 48
    t = torch.randn(N, M, device=device).t()
    b = torch.empty(M, N, device=device)
    try:
        make_dense(M, N)(t, b)
    except Exception as e:
        assert "stride" in str(e).lower() or "contiguous" in str(e).lower(), e
    else:
        assert torch.equal(b, t + 1), "accepted wrong strides and read the wrong elements"
    k = make_strided(M, N)
    for a in (
        t,
        torch.randn(M, N, device=device),
        torch.randn(M, 2 * N, device=device)[:, ::2],
        torch.randn(2 * M, N, device=device)[::2],
    ):
        k(a, b)
        assert torch.equal(b, a + 1)
