# SPDX-License-Identifier: Apache-2.0
"""GEMM tiles whose K extent is no multiple of the tensor-core K step.

Guards against: a dropped K tail, instructions that the type lacks.
Right behaviour: correct (pad), or a clean rejection that states the multiple needed.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def make(M, N, K, dtype, acc):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), acc)):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, K), dtype)
            Bs = T.alloc_shared((N, K), dtype)
            Cl = T.alloc_fragment((M, N), acc)
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(Cl)
            T.gemm(As, Bs, Cl, transpose_B=True)
            T.copy(Cl, C)

    return main


PROGRAMS = [
    (make, (64, 64, k, d, a))
    for k, d, a in (
        (8, "float16", "float32"),
        (24, "float16", "float32"),
        (40, "bfloat16", "float32"),
        (16, "int8", "int32"),
        (48, "int8", "int32"),
        (16, "float16", "float32"),
        (32, "int8", "int32"),
    )
]


def run(device="cuda"):
    for f, args in PROGRAMS:
        m, n, k, d, acc = args
        if d == "int8":
            a = torch.randint(-8, 8, (m, k), device=device, dtype=torch.int8)
            b = torch.randint(-8, 8, (n, k), device=device, dtype=torch.int8)
        else:
            a = torch.randint(-4, 5, (m, k), device=device).to(getattr(torch, d))
            b = torch.randint(-4, 5, (n, k), device=device).to(getattr(torch, d))
        want = (a.double() @ b.double().t()).to(getattr(torch, acc))
        try:
            kern = f(*args)
        except Exception as e:
            text = f"{type(e).__name__} {e}"
            assert k not in (16, 32) or d == "int8" and k == 16, f"aligned K must work: {text[:200]}"
            assert "static_assert" not in text and "InternalError" not in text, text[:400]
            continue
        assert torch.equal(kern(a, b), want), args
