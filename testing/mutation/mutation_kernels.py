# SPDX-License-Identifier: Apache-2.0
"""Kernels to mutate: what the compiler makes of four shapes of programs, one block each, with their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilelang.language as T
from tilelang.transform.pipeline import lower

BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Case:
    """A level-4 function, its arguments (outputs hold what no kernel writes), and the positions of its outputs."""

    func: Any
    arguments: Callable[[], list[np.ndarray]]
    outputs: tuple[int, ...]


def gemm_ring() -> Case:
    """TMA ring of three stages over five steps, a producer warp, two consumer warpgroups, wgmma, TMA stores."""
    M, N, K, bk = 128, 192, 160, 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((N, K), "bfloat16"), C: T.Tensor((M, N), "bfloat16")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((M, bk), "bfloat16")
            Bs = T.alloc_shared((N, bk), "bfloat16")
            acc = T.alloc_fragment((M, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // bk, num_stages=3):
                T.copy(A[0, k * bk], As)
                T.copy(B[0, k * bk], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C)

    return Case(lower(main, "sm_90a"), lambda: [_ints((M, K), 0), _ints((N, K), 1), _blank((M, N), BF16)], (2,))


def attention() -> Case:
    """Two gemms with a softmax between, rings of K and V, register budgets, warpgroups in turns."""
    S, D, bm, bn = 256, 128, 128, 64
    scale = 1.4426950408889634 * D**-0.5
    f16 = "bfloat16"

    @T.prim_func
    def main(Q: T.Tensor((bm, D), f16), K: T.Tensor((S, D), f16), V: T.Tensor((S, D), f16), O: T.Tensor((bm, D), f16)):
        with T.Kernel(1, threads=256):
            Qs = T.alloc_shared((bm, D), f16)
            Ks = T.alloc_shared((bn, D), f16)
            Vs = T.alloc_shared((bn, D), f16)
            s = T.alloc_fragment((bm, bn), "float32")
            p = T.alloc_fragment((bm, bn), f16)
            o = T.alloc_fragment((bm, D), "float32")
            m, before, alpha = (T.alloc_fragment((bm,), "float32") for _ in range(3))
            row, total = (T.alloc_fragment((bm,), "float32") for _ in range(2))
            T.copy(Q, Qs)
            T.clear(o)
            T.clear(total)
            T.fill(m, -1e30)
            for k in T.Pipelined(S // bn, num_stages=2):
                T.copy(K[k * bn, 0], Ks)
                T.clear(s)
                T.gemm(Qs, Ks, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(m, before)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(bm):
                    alpha[i] = T.exp2(before[i] * scale - m[i] * scale)
                for i, j in T.Parallel(bm, bn):
                    s[i, j] = T.exp2(s[i, j] * scale - m[i] * scale)
                T.reduce_sum(s, row, dim=1)
                for i in T.Parallel(bm):
                    total[i] = total[i] * alpha[i] + row[i]
                T.copy(s, p)
                for i, j in T.Parallel(bm, D):
                    o[i, j] *= alpha[i]
                T.copy(V[k * bn, 0], Vs)
                T.gemm(p, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(bm, D):
                o[i, j] /= total[i]
            T.copy(o, O)

    shapes = ((bm, D), (S, D), (S, D))
    return Case(
        lower(main, "sm_90a"), lambda: [*(_normal(x, n) for n, x in enumerate(shapes)), _blank((bm, D), BF16)], (3,)
    )


def async_copies() -> Case:
    """A cp.async pipeline of three stages with ldmatrix and mma, on an older machine."""
    M, N, K, bk = 64, 64, 160, 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, bk), "float16")
            Bs = T.alloc_shared((bk, N), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // bk, num_stages=3):
                T.copy(A[0, k * bk], As)
                T.copy(B[k * bk, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    def arguments() -> list[np.ndarray]:
        return [_ints((M, K), 0, np.float16), _ints((K, N), 1, np.float16), _blank((M, N), np.float32)]

    return Case(lower(main, "sm_80"), arguments, (2,))


def shared_tiles() -> Case:
    """Plain shared memory: transposed reads, a reduction over warps, tiles used again in a loop, a running sum."""
    R, C, steps = 32, 48, 3

    @T.prim_func
    def main(A: T.Tensor((steps * R, C), "float32"), B: T.Tensor((C, R), "float32"), D: T.Tensor((R,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((R, C), "float32")
            turned = T.alloc_shared((C, R), "float32")
            x, y = T.alloc_fragment((R, C), "float32"), T.alloc_fragment((C, R), "float32")
            rows, total = T.alloc_fragment((R,), "float32"), T.alloc_shared((R,), "float32")
            T.clear(y)
            T.fill(total, 1)
            for k in T.serial(steps):
                T.copy(A[k * R, 0], tile)
                for i, j in T.Parallel(C, R):
                    turned[i, j] = tile[R - 1 - j, i] * 2.0
                for i, j in T.Parallel(C, R):
                    y[i, j] += turned[C - 1 - i, j]
                for i, j in T.Parallel(R, C):
                    x[i, j] = turned[j, R - 1 - i] + tile[i, j]
                T.reduce_sum(x, rows, dim=1)
                for i in T.Parallel(R):
                    total[i] = total[i] + rows[R - 1 - i]
            T.copy(y, B)
            T.copy(total, D)

    def arguments() -> list[np.ndarray]:
        return [_ints((steps * R, C), 0, np.float32), _blank((C, R), np.float32), _blank((R,), np.float32)]

    return Case(lower(main, "sm_90a"), arguments, (1, 2))


def _ints(shape: tuple[int, ...], seed: int, dtype: Any = BF16) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def _normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def _blank(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.full(shape, -777, dtype)


CASES: dict[str, Callable[[], Case]] = {f.__name__: f for f in (gemm_ring, attention, async_copies, shared_tiles)}
