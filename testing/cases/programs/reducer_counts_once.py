# SPDX-License-Identifier: Apache-2.0
"""Deferred reducer (matrix-vector product) where the tile width does not divide the thread count.

Guards against: contributions counted more than once.
Right behaviour: each product is counted once: y = A @ x.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(M, N, BM, BN, threads):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), X: T.Tensor((N,), "float32"), Y: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, BM), threads=threads) as b:
            r = T.alloc_reducer((BM,), "float32", op="sum")
            y = T.alloc_fragment((BM,), "float32")
            T.reducer_init(r)
            for k in T.serial(T.ceildiv(N, BN)):
                for i, j in T.Parallel(BM, BN):
                    T.reducer_update(r[i], A[b * BM + i, k * BN + j] * X[k * BN + j])
            T.finalize_reducer(r, y)
            T.copy(y, Y[b * BM : (b + 1) * BM])

    return main


PROGRAMS = [(make, (64, 240, 16, bn, t)) for bn, t in ((40, 128), (48, 128), (80, 256), (120, 128))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        a = torch.randn(args[0], args[1], device=device)
        x = torch.randn(args[1], device=device)
        torch.testing.assert_close(f(*args)(a, x), a @ x, rtol=1e-3, atol=1e-3)
