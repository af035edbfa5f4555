# SPDX-License-Identifier: Apache-2.0
"""Kernels to mutate: what the compiler makes of the shapes of programs it knows, small, with their arguments.

Small means one or a few blocks, but rings wrap at least twice, slots of stores are used again, and tiles are ragged
where the program guards: what never happens cannot be missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

import tilelang.language as T
from tilelang.support.options import CompileOptions
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
SM90 = ARCHS["sm_90a"]
ONE_TILE = CompileOptions(persistent=False)


@dataclass(frozen=True)
class Case:
    """A level-4 function, its arguments (outputs hold what no kernel writes), and the positions of its outputs."""

    func: Any
    arguments: Callable[[], list[np.ndarray]]
    outputs: tuple[int, ...]


def gemm_ring() -> Case:
    """TMA ring of three stages over seven steps, a producer warp, two consumer warpgroups, wgmma, four TMA stores each
    over two slots."""
    M, N, K, bk = 128, 256, 224, 32

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

    return Case(lower(main, SM90, ONE_TILE), lambda: [_ints((M, K), 0), _ints((N, K), 1), _blank((M, N), BF16)], (2,))


def persistent_gemm() -> Case:
    """One block walks over four tiles of three chunks: rings, slots and phases go on from tile to tile."""
    M, N, K, bm, bn, bk = 256, 384, 96, 128, 192, 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((K, N), "bfloat16"), C: T.Tensor((M, N), "bfloat16")):
        with T.Kernel(N // bn, M // bm, threads=256) as (bx, by):
            As = T.alloc_shared((bm, bk), "bfloat16")
            Bs = T.alloc_shared((bk, bn), "bfloat16")
            acc = T.alloc_fragment((bm, bn), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // bk, num_stages=2):
                T.copy(A[by * bm, k * bk], As)
                T.copy(B[k * bk, bx * bn], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * bm, bx * bn])

    func = lower(main, replace(SM90, num_sms=1), CompileOptions(persistent=True))
    return Case(func, lambda: [_ints((M, K), 0), _ints((K, N), 1), _blank((M, N), BF16)], (2,))


def cluster_gemm() -> Case:
    """A pair of blocks loads its common tiles together: multicast, arrivals in the other block, barriers of both."""
    M, N, K, bm, bn, bk = 256, 256, 160, 128, 128, 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((K, N), "bfloat16"), C: T.Tensor((M, N), "bfloat16")):
        with T.Kernel(M // bm, N // bn, threads=128) as (bx, by):
            As = T.alloc_shared((bm, bk), "bfloat16")
            Bs = T.alloc_shared((bk, bn), "bfloat16")
            acc = T.alloc_fragment((bm, bn), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // bk, num_stages=3):
                T.copy(A[bx * bm, k * bk], As)
                T.copy(B[k * bk, by * bn], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[bx * bm, by * bn])

    func = lower(main, replace(SM90, num_sms=2), CompileOptions(persistent=True, cluster=2))
    return Case(func, lambda: [_ints((M, K), 0), _ints((K, N), 1), _blank((M, N), BF16)], (2,))


def split_gemm() -> Case:
    """Three blocks add their parts of a product to one tile by atomic adds."""
    M, N, K, bk, parts = 64, 128, 480, 32, 3
    steps = K // bk // parts

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(parts, threads=128) as part:
            As = T.alloc_shared((M, bk), "float16")
            Bs = T.alloc_shared((bk, N), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(A[0, (part * steps + k) * bk], As)
                T.copy(B[(part * steps + k) * bk, 0], Bs)
                T.gemm(As, Bs, acc)
            T.atomic_add(C[0, 0], acc)

    def arguments() -> list[np.ndarray]:
        return [_ints((M, K), 0, np.float16), _ints((K, N), 1, np.float16), np.zeros((M, N), np.float32)]

    return Case(lower(main, SM90, ONE_TILE), arguments, (2,))


def float8_gemm() -> Case:
    """float8 operands, added up by the tensor cores for one step only; float32 results through shared memory."""
    M, N, K, bk = 64, 64, 320, 64

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float8_e4m3fn"), B: T.Tensor((N, K), "float8_e4m3fn"), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, bk), "float8_e4m3fn")
            Bs = T.alloc_shared((N, bk), "float8_e4m3fn")
            step = T.alloc_fragment((M, N), "float32")
            total = T.alloc_fragment((M, N), "float32")
            tile = T.alloc_shared((M, N), "float32")
            T.clear(total)
            for k in T.Pipelined(K // bk, num_stages=2):
                T.copy(A[0, k * bk], As)
                T.copy(B[0, k * bk], Bs)
                T.gemm(As, Bs, step, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(M, N):
                    total[i, j] += step[i, j]
            T.copy(total, tile)
            T.copy(tile, C)

    return Case(
        lower(main, SM90, ONE_TILE),
        lambda: [_ints((M, K), 0, E4M3), _ints((N, K), 1, E4M3), _blank((M, N), np.float32)],
        (2,),
    )


def unpacked_gemm() -> Case:
    """An operand that threads write themselves: barriers and proxy fences between stores, wgmma, and stores again."""
    M, N, K, bk = 64, 64, 320, 64

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), W: T.Tensor((N, K), "int8"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, bk), "float16")
            packed = T.alloc_shared((N, bk), "int8")
            Ws = T.alloc_shared((N, bk), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // bk, num_stages=2):
                T.copy(A[0, k * bk], As)
                T.copy(W[0, k * bk], packed)
                for i, j in T.Parallel(N, bk):
                    Ws[i, j] = T.cast(packed[i, j], "float16") * T.float16(0.5)
                T.gemm(As, Ws, acc, transpose_B=True)
            T.copy(acc, C)

    def arguments() -> list[np.ndarray]:
        return [_ints((M, K), 0, np.float16), _ints((N, K), 1, np.int8), _blank((M, N), np.float16)]

    return Case(lower(main, SM90, ONE_TILE), arguments, (2,))


def by_hand() -> Case:
    """A producer and a consumer warpgroup with the program's own barriers and transfers."""
    M, N, K, bk, stages = 64, 128, 320, 64, 2

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((stages, M, bk), "float16")
            Bs = T.alloc_shared((stages, bk, N), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            out = T.alloc_shared((M, N), "float32")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([128] * stages)
            tx = T.get_thread_binding()
            if tx >= 128:
                T.dec_max_nreg(24)
                for k in T.serial(K // bk):
                    T.mbarrier_wait_parity(empty[k % stages], ((k // stages) & 1) ^ 1)
                    T.tma_copy(A[0, k * bk], As[k % stages, :, :], barrier=full[k % stages])
                    T.tma_copy(B[k * bk, 0], Bs[k % stages, :, :], barrier=full[k % stages])
                    if tx == 128:
                        T.mbarrier_arrive(full[k % stages])
            else:
                T.inc_max_nreg(240)
                T.clear(acc)
                for k in T.serial(K // bk):
                    T.barrier_wait(full[k % stages], k // stages)
                    T.wgmma_gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                    T.wait_wgmma(0)
                    T.barrier_arrive(empty[k % stages])
                T.copy(acc, out)
                T.copy(out, C)

    def arguments() -> list[np.ndarray]:
        return [_ints((M, K), 0, np.float16), _ints((K, N), 1, np.float16), _blank((M, N), np.float32)]

    return Case(lower(main, SM90, ONE_TILE), arguments, (2,))


def attention() -> Case:
    """Two gemms with a softmax between, rings of K and V, register budgets, warpgroups in turns."""
    S, D, bm, bn = 320, 128, 192, 64
    scale = 1.4426950408889634 * D**-0.5
    f16 = "bfloat16"

    @T.prim_func
    def main(Q: T.Tensor((bm, D), f16), K: T.Tensor((S, D), f16), V: T.Tensor((S, D), f16), O: T.Tensor((bm, D), f16)):
        with T.Kernel(1, threads=384):
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
        lower(main, SM90, ONE_TILE),
        lambda: [*(_normal(x, n) for n, x in enumerate(shapes)), _blank((bm, D), BF16)],
        (3,),
    )


def async_copies() -> Case:
    """A cp.async pipeline of three stages with ldmatrix and mma, on an older machine, ragged on all sides; the result
    goes through shared memory."""
    M, N, K, bm, bn, bk = 60, 56, 152, 64, 64, 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((bm, bk), "float16")
            Bs = T.alloc_shared((bk, bn), "float16")
            acc = T.alloc_fragment((bm, bn), "float32")
            tile = T.alloc_shared((bm, bn), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=3):
                T.copy(A[0, k * bk], As)
                T.copy(B[k * bk, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, tile)
            for i, j in T.Parallel(bm, bn):
                if i < M and j < N:
                    C[i, j] = tile[i, j] + tile[i, (j + 8) % bn]

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

    return Case(lower(main, SM90, ONE_TILE), arguments, (1, 2))


def _ints(shape: tuple[int, ...], seed: int, dtype: Any = BF16) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def _normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def _blank(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.full(shape, -777, dtype)


CASES: dict[str, Callable[[], Case]] = {
    f.__name__: f
    for f in (
        gemm_ring,
        persistent_gemm,
        cluster_gemm,
        split_gemm,
        float8_gemm,
        unpacked_gemm,
        by_hand,
        attention,
        async_copies,
        shared_tiles,
    )
}
