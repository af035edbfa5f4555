# SPDX-License-Identifier: Apache-2.0
"""Programs whose results on the simulator and on a GPU are compared: copies, layouts, integers, casts, products.

`CASES` maps a name to a `Case`: the program, its inputs (the outputs come after them), whether results must be equal
bit for bit, and device ops that the program must contain, so that a test speaks of what it claims to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tilelang.language as T
from tilelang.layout import (
    make_full_bank_swizzled_layout,
    make_half_bank_swizzled_layout,
    make_quarter_bank_swizzled_layout,
)

__all__ = ["CASES", "Case", "cast_program"]


@dataclass(frozen=True)
class Case:
    """`ops`: device ops (or parts of their names) that the program of `arch` has to contain. `cpu`: the cpu target
    gives the same (conversions of floats that no integer holds are only defined on a device)."""

    func: Any
    inputs: Callable[[], list[torch.Tensor]]
    outputs: tuple[int, ...]
    exact: bool = True
    arch: str = "sm_90a"
    ops: tuple[str, ...] = ()
    cpu: bool = True


CASES: dict[str, Case] = {}


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def bits(shape: tuple[int, ...], dtype: str, seed: int = 0) -> torch.Tensor:
    """Random bits; no NaN among floats, whose payloads copies keep but arithmetic does not."""
    carrier = getattr(torch, dtype)
    size = torch.empty((), dtype=carrier).element_size()
    raw = rng(seed).integers(0, 256, (*shape, size), np.uint8)
    x = torch.from_numpy(raw).view(carrier).reshape(shape)
    return torch.where(x.isnan(), torch.ones_like(x), x) if x.is_floating_point() and size > 1 else x


def case(name: str, inputs: Callable[[], list[torch.Tensor]], outputs: tuple[int, ...] = (1,), **more: Any) -> Any:
    def register(func: Any) -> Any:
        CASES[name] = Case(func, inputs, outputs, **more)
        return func

    return register


# --- copies
def copy_program(shape: tuple[int, int], tile: tuple[int, int], dtype: str, layout: Any = None, fragment: bool = False):
    @T.prim_func
    def main(A: T.Tensor(shape, dtype), O: T.Tensor(shape, dtype)):
        with T.Kernel(T.ceildiv(shape[1], tile[1]), T.ceildiv(shape[0], tile[0]), threads=128) as (bx, by):
            S = T.alloc_shared(tile, dtype)
            if layout is not None:
                T.annotate_layout({S: layout(S)})
            if fragment:
                F = T.alloc_fragment(tile, dtype)
                T.copy(A[by * tile[0], bx * tile[1]], S)
                T.copy(S, F)
                T.copy(F, O[by * tile[0], bx * tile[1]])
            else:
                T.copy(A[by * tile[0], bx * tile[1]], S)
                T.copy(S, O[by * tile[0], bx * tile[1]])

    return main


for _dtype in ("int8", "float16", "bfloat16", "float32", "int64", "float8_e4m3fn"):
    _shape = (96, 160)
    for _arch in ("sm_90a", "sm_80"):
        CASES[f"copy-{_dtype}-{_arch}"] = Case(
            copy_program(_shape, (32, 64), _dtype), lambda s=_shape, d=_dtype: [bits(s, d)], (1,), arch=_arch
        )
    CASES[f"copy-through-registers-{_dtype}"] = Case(
        copy_program((70, 90), (32, 64), _dtype, fragment=True), lambda d=_dtype: [bits((70, 90), d)], (1,)
    )


def transfer(dtype: str, layout: Any, rows: int = 40) -> Any:
    """The copy engine brings a tile with a swizzle and takes it away; tiles stick out of the tensor."""
    cols = 128 if dtype == "int8" else 64

    @T.prim_func
    def main(
        A: T.Tensor((rows, 2 * cols), dtype), O: T.Tensor((64, 2 * cols), dtype), P: T.Tensor((rows, 2 * cols), dtype)
    ):
        with T.Kernel(2, threads=128) as bx:
            S = T.alloc_shared((64, cols), dtype)
            full = T.alloc_barrier(1)
            tx = T.get_thread_binding()
            if layout is not None:
                T.annotate_layout({S: layout(S)})
            T.tma_copy(A[0, bx * cols], S, barrier=full)
            if tx == 0:
                T.mbarrier_arrive(full)
            T.barrier_wait(full, 0)
            for i, j in T.Parallel(64, cols):
                O[i, bx * cols + j] = S[i, j]
            T.tma_copy(S, P[0, bx * cols])
            T.tma_store_arrive()
            T.tma_store_wait(0)

    return main


for _swizzle, _layout in {
    "128": make_full_bank_swizzled_layout,
    "64": make_half_bank_swizzled_layout,
    "32": make_quarter_bank_swizzled_layout,
    "default": None,
}.items():
    for _dtype in ("bfloat16", "float32", "int8"):
        CASES[f"tma-swizzle-{_swizzle}-{_dtype}"] = Case(
            transfer(_dtype, _layout),
            lambda d=_dtype: [bits((40, 256 if d == "int8" else 128), d)],
            (1, 2),
            ops=("tma_load", "tma_store"),
            cpu=False,
        )


@case("cp-async", lambda: [bits((4, 128), "float32")], arch="sm_80", ops=("cp_async",), cpu=False)
@T.prim_func
def cp_async(A: T.Tensor((4, 128), "float32"), O: T.Tensor((4, 128), "float32")):
    with T.Kernel(1, threads=64):
        S = T.alloc_shared((2, 128), "float32")
        T.async_copy(A[0, :], S[0, :])
        for k in T.serial(4):
            if k < 3:
                T.async_copy(A[k + 1, :], S[(k + 1) % 2, :])
                T.ptx_wait_group(1)
            else:
                T.ptx_wait_group(0)
            for i in T.Parallel(128):
                O[k, i] = S[k % 2, 127 - i]


def transpose(dtype: str, n: int) -> Any:
    @T.prim_func
    def main(A: T.Tensor((n, n), dtype), O: T.Tensor((n, n), dtype)):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(n, 64), threads=128) as (bx, by):
            S = T.alloc_shared((64, 64), dtype)
            R = T.alloc_shared((64, 64), dtype)
            T.copy(A[by * 64, bx * 64], S)
            for i, j in T.Parallel(64, 64):
                R[j, i] = S[i, j]
            T.copy(R, O[bx * 64, by * 64])

    return main


for _dtype in ("int8", "float16", "float32"):
    for _n in (128, 100):
        CASES[f"transpose-{_dtype}-{_n}"] = Case(transpose(_dtype, _n), lambda d=_dtype, n=_n: [bits((n, n), d)], (1,))


@case("stmatrix", lambda: [bits((128, 128), "float32")], (1,), ops=("stmatrix", "tma_store"))
@T.prim_func
def stmatrix(A: T.Tensor((128, 128), "float32"), O: T.Tensor((128, 128), "bfloat16")):
    with T.Kernel(1, threads=128):
        Z = T.alloc_shared((128, 64), "bfloat16")
        Y = T.alloc_shared((64, 128), "bfloat16")
        acc = T.alloc_fragment((128, 128), "float32")
        T.fill(Z, 0)
        T.fill(Y, 0)
        T.copy(A, acc)
        T.gemm(Z, Y, acc)
        T.copy(acc, O)


# --- lanes
@case("shuffles", lambda: [bits((64,), "int32")], (1,), ops=("shfl_xor", "shfl_down", "shfl_up", "shfl_idx"))
@T.prim_func
def shuffles(A: T.Tensor((64,), "int32"), O: T.Tensor((12, 64), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        O[0, tx] = T.shfl_xor(A[tx], 1)
        O[1, tx] = T.shfl_xor(A[tx], 16)
        O[2, tx] = T.shfl_xor(A[tx], 3, width=8)
        O[3, tx] = T.shfl_down(A[tx], 5)
        O[4, tx] = T.shfl_down(A[tx], 2, width=4)
        O[5, tx] = T.shfl_up(A[tx], 7)
        O[6, tx] = T.shfl_up(A[tx], 1, width=16)
        O[7, tx] = T.shfl_sync(A[tx], 9)
        O[8, tx] = T.shfl_sync(A[tx], 2, width=8)
        O[9, tx] = T.warp_reduce_sum(A[tx])
        O[10, tx] = T.warp_reduce_max(A[tx])
        O[11, tx] = T.cast(T.ballot(A[tx] > 0), "int32")


@case("votes", lambda: [bits((64,), "int32")], (1,))
@T.prim_func
def votes(A: T.Tensor((64,), "int32"), O: T.Tensor((2, 64), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        O[0, tx] = T.if_then_else(T.any_sync(A[tx] > 1000000), 1, 0)
        O[1, tx] = T.if_then_else(T.all_sync(A[tx] > -2147483647), 1, 0)


# --- integers
def integer_program(dtype: str) -> Any:
    @T.prim_func
    def main(A: T.Tensor((128,), dtype), B: T.Tensor((128,), dtype), O: T.Tensor((12, 128), dtype)):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            a = A[tx]
            b = B[tx]
            d = T.if_then_else(b == 0, T.cast(1, dtype), b)
            O[0, tx] = a + b
            O[1, tx] = a - b
            O[2, tx] = a * b
            O[3, tx] = a // d
            O[4, tx] = a % d
            O[5, tx] = T.truncdiv(a, d)
            O[6, tx] = T.truncmod(a, d)
            O[7, tx] = (a & b) ^ (a | ~b)
            O[8, tx] = a << T.cast(3, dtype)
            O[9, tx] = a >> T.cast(2, dtype)
            O[10, tx] = T.max(a, b)
            O[11, tx] = T.min(a, b)

    return main


for _dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64"):
    CASES[f"integers-{_dtype}"] = Case(
        integer_program(_dtype), lambda d=_dtype: [bits((128,), d, 1), bits((128,), d, 2)], (2,)
    )


def atomics_program(dtype: str, shared: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((256,), dtype), O: T.Tensor((6, 8), dtype)):
        with T.Kernel(1 if shared else 2, threads=128) as bx:
            S = T.alloc_shared((6, 8), dtype)
            tx = T.get_thread_binding()
            if shared:
                if tx < 48:
                    S[tx // 8, tx % 8] = O[tx // 8, tx % 8]
                T.sync_threads()
                T.atomic_add(S[0, tx % 8], A[tx])
                T.atomic_max(S[1, tx % 8], A[tx])
                T.atomic_min(S[2, tx % 8], A[tx])
                T.atomic_and(S[3, tx % 8], A[tx])
                T.atomic_or(S[4, tx % 8], A[tx])
                T.atomic_xor(S[5, tx % 8], A[tx])
                T.sync_threads()
                if tx < 48:
                    O[tx // 8, tx % 8] = S[tx // 8, tx % 8]
            else:
                T.atomic_add(O[0, tx % 8], A[bx * 128 + tx])
                T.atomic_max(O[1, tx % 8], A[bx * 128 + tx])
                T.atomic_min(O[2, tx % 8], A[bx * 128 + tx])
                T.atomic_and(O[3, tx % 8], A[bx * 128 + tx])
                T.atomic_or(O[4, tx % 8], A[bx * 128 + tx])
                T.atomic_xor(O[5, tx % 8], A[bx * 128 + tx])

    return main


for _dtype in ("int32", "uint32"):
    for _shared in (False, True):
        CASES[f"atomics-{_dtype}-{'shared' if _shared else 'global'}"] = Case(
            atomics_program(_dtype, _shared),
            lambda d=_dtype: [bits((256,), d, 3), bits((6, 8), d, 4)],
            (1,),
            ops=("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor"),
        )


def scan_program(dtype: str) -> Any:
    @T.prim_func
    def main(A: T.Tensor((32, 96), dtype), O: T.Tensor((32, 96), dtype), R: T.Tensor((3, 32), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 96), dtype)
            F = T.alloc_fragment((32, 96), dtype)
            r = T.alloc_fragment((32,), dtype)
            T.copy(A, S)
            T.copy(S, F)
            T.reduce_sum(F, r, dim=1)
            T.copy(r, R[0, :])
            T.reduce_max(F, r, dim=1)
            T.copy(r, R[1, :])
            T.reduce_min(F, r, dim=1)
            T.copy(r, R[2, :])
            T.cumsum(S, S, dim=1)
            T.copy(S, O)

    return main


CASES["scans-int32"] = Case(scan_program("int32"), lambda: [bits((32, 96), "int32")], (1, 2))


# --- casts
EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.1, 1.125, 1.375, 447.0, 448.0, 463.9, 464.0, 465.0, 480.0, 57344.0, 61439.0, 61440.0,
    65504.0, 65519.0, 65520.0, 1e5, -1e5, 3.3e38, 3.4028235e38, float("inf"), -float("inf"), float("nan"), 1e-3,
    1e-7, 3e-6, -2e-5, 2.0**-9, 2.0**-10, 2.0**-17, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-133, 2.0**-149, 127.4,
    127.5, 128.0, -128.5, -129.0, 255.5, 256.0, 2147483520.0, 2147483648.0, -2147483648.0, 1.00390625, 1.01171875,
    256.5, 257.5,
]  # fmt: skip


def floats(dtype: str) -> torch.Tensor:
    """Edges, and a spread of values of all magnitudes."""
    r = rng(5)
    spread = r.standard_normal(1024 - 2 * len(EDGES)) * 2.0 ** r.integers(-30, 30, 1024 - 2 * len(EDGES))
    return torch.tensor([*EDGES, *(-x for x in EDGES), *spread.tolist()], dtype=torch.float32).to(getattr(torch, dtype))


def cast_program(src: str, dst: str) -> Any:
    @T.prim_func
    def main(A: T.Tensor((1024,), src), O: T.Tensor((1024,), dst)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(1024):
                O[i] = T.cast(A[i], dst)

    return main


for _src, _dst in (
    ("float32", "bfloat16"), ("float32", "float16"), ("float32", "float8_e4m3fn"), ("float32", "float8_e5m2"),
    ("float16", "float8_e4m3fn"), ("bfloat16", "float8_e5m2"), ("bfloat16", "float32"), ("float16", "float32"),
    ("float16", "bfloat16"), ("float32", "float64"), ("float32", "int32"), ("float32", "uint8"), ("float32", "int8"),
    ("float32", "int16"), ("float32", "uint32"), ("float16", "int32"), ("float16", "int8"), ("float16", "uint8"),
    ("bfloat16", "int8"), ("bfloat16", "int32"), ("float32", "int64"), ("float16", "int64"), ("float64", "int32"),
):  # fmt: skip
    CASES[f"cast-{_src}-{_dst}"] = Case(
        cast_program(_src, _dst), lambda s=_src: [floats(s)], (1,), cpu="int" not in _dst
    )
for _src in ("float8_e4m3fn", "float8_e5m2"):
    for _dst in ("float32", "float16", "bfloat16"):
        CASES[f"cast-{_src}-{_dst}"] = Case(
            cast_program(_src, _dst), lambda s=_src: [torch.arange(1024).to(torch.uint8).view(getattr(torch, s))], (1,)
        )
for _src, _dst in (
    ("int32", "float32"),
    ("int64", "float32"),
    ("int32", "float16"),
    ("uint8", "bfloat16"),
    ("int32", "int8"),
):
    CASES[f"cast-{_src}-{_dst}"] = Case(cast_program(_src, _dst), lambda s=_src: [bits((1024,), s, 7)], (1,))


# --- products
def gemm_program(dtype: str, acc: str, trans_b: bool) -> Any:
    m, n, k = 128, 96, 160
    b_shape, b_tile = ((n, k), (96, 32)) if trans_b else ((k, n), (32, 96))

    @T.prim_func
    def main(A: T.Tensor((m, k), dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, n), acc)):
        with T.Kernel(1, m // 64, threads=128) as (bx, by):
            As = T.alloc_shared((64, 32), dtype)
            Bs = T.alloc_shared(b_tile, dtype)
            C_local = T.alloc_fragment((64, 96), acc)
            T.clear(C_local)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, i * 32], As)
                if trans_b:
                    T.copy(B[0, i * 32], Bs)
                else:
                    T.copy(B[i * 32, 0], Bs)
                T.gemm(As, Bs, C_local, transpose_B=trans_b)
            T.copy(C_local, C[by * 64, 0])

    return main


def operands(dtype: str, trans_b: bool) -> list[torch.Tensor]:
    shapes = (128, 160), ((96, 160) if trans_b else (160, 96))
    if dtype == "int8":
        return [bits(s, dtype, i) for i, s in enumerate(shapes)]
    return [
        torch.from_numpy(rng(i).standard_normal(s).astype(np.float32)).to(getattr(torch, dtype))
        for i, s in enumerate(shapes)
    ]


for _dtype, _acc, _op in (
    ("float16", "float32", "wgmma"), ("bfloat16", "float32", "wgmma"), ("float16", "float16", "wgmma"),
    ("float32", "float32", "wgmma"), ("int8", "int32", "wgmma"), ("float8_e4m3fn", "float32", "wgmma"),
    ("float8_e5m2", "float32", "wgmma"), ("float64", "float64", ""),
):  # fmt: skip
    _wide = _dtype in ("float16", "bfloat16", "float64")
    CASES[f"product-{_dtype}-{_acc}"] = Case(
        gemm_program(_dtype, _acc, not _wide), lambda d=_dtype, t=not _wide: operands(d, t), (2,),
        exact=_dtype == "int8", ops=(_op,) if _op else (),
    )  # fmt: skip
for _dtype, _acc in (("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32"), ("float32", "float32")):
    CASES[f"product-mma-{_dtype}"] = Case(
        gemm_program(_dtype, _acc, True), lambda d=_dtype: operands(d, True), (2,), exact=_dtype == "int8",
        arch="sm_80", ops=("mma",),
    )  # fmt: skip
