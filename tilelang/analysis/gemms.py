# SPDX-License-Identifier: Apache-2.0
"""What a gemm may run on: wgmma, mma.sync or scalar code, and how warps share its tile.

wgmma has 64 rows or none. A product with fewer runs on it as its transpose: C^T = B^T A^T has the columns of C as rows,
and N may be any multiple of 8.

Every refusal is a reason text; `tilelang inspect` prints them. Limits come from `tilelang.target.operands`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilelang.analysis.copies import bits_of
from tilelang.ir.attrs import FRAGMENT, SHARED_SCOPES
from tilelang.ir.stmts import const_int, dtype_of
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.layout.swizzle import best_swizzle
from tilelang.target.arch import Arch
from tilelang.target.operands import (
    MMA_M,
    MMA_N,
    MMA_TYPES,
    WARP,
    WARPGROUP,
    WGMMA_ANY_MAJOR,
    WGMMA_K_BITS,
    WGMMA_M,
    WGMMA_N_MAX,
    WGMMA_N_STEP,
    WGMMA_TYPES,
)

__all__ = [
    "GemmPlan",
    "GemmShape",
    "gemm_shape",
    "mma_plan",
    "plan_gemm",
    "swap_operands",
    "tile_region",
    "wgmma_plan",
]


_ALONE = "not every gemm of the kernel can run"


@dataclass(frozen=True)
class GemmShape:
    """M, N, K of a gemm; None where extents do not match."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class GemmPlan:
    """The instruction and the split: warpgroups (wgmma) or warps (mma) along M and N, and why not something better.

    `swapped`: the plan is that of `swap_operands` of the op.
    """

    inst: str
    warps_m: int = 0
    warps_n: int = 0
    reasons: tuple[str, ...] = ()
    swapped: bool = False


def tile_region(region: Any) -> list[tuple[Any, int | None, int | None]]:
    """(min, extent, size) of the two trailing dimensions of an operand region; the leading ones must be units."""
    dims = [
        (r.min, const_int(r.extent), const_int(s)) for r, s in zip(region.region, region.source.ty.shape, strict=True)
    ]
    return dims[-2:]


def gemm_shape(op: TileOp) -> GemmShape | str:
    """M, N, K of a gemm, or what is wrong with its operands."""
    got: dict[str, tuple[int, int]] = {}
    for name in ("a", "b", "c"):
        extents = [const_int(r.extent) for r in op[name].region]
        if any(e is None for e in extents):
            return f"an extent of {op[name].source.name} is not constant"
        if len(extents) < 2 or any(e != 1 for e in extents[:-2]):
            return f"{op[name].source.name} is no two-dimensional tile"
        got[name] = (int(extents[-2] or 0), int(extents[-1] or 0))
    (m, n), a, b = got["c"][::-1] if op.attrs["trans_c"] else got["c"], got["a"], got["b"]
    am, ak = a[::-1] if op.attrs["trans_a"] else a
    bk, bn = b[::-1] if op.attrs["trans_b"] else b
    if (am, bk, bn) != (m, ak, n):
        return f"the shapes of a{a}, b{b} and c{got['c']} do not match"
    return GemmShape(m, n, ak)


def swap_operands(op: TileOp) -> TileOp:
    """The same product as C^T = B^T A^T."""
    turned = {
        "trans_a": not op.attrs["trans_b"],
        "trans_b": not op.attrs["trans_a"],
        "trans_c": not op.attrs["trans_c"],
    }
    attrs = {**op.attrs, **turned, "policy": "full_row"}
    return TileOp.of(make_tile_op("gemm", {**op.operands, "a": op["b"], "b": op["a"]}, attrs, op.span))


def plan_gemm(op: TileOp, threads: tuple[int, int], arch: Arch, swap: bool = True) -> GemmPlan | str:
    """The fastest legal way to run `op` on threads [lo, hi), or why there is none (shape errors only). `swap`: its
    operands may be swapped."""
    shape = gemm_shape(op)
    if isinstance(shape, str):
        return shape
    first = wgmma_plan(op, shape, threads, arch)
    if isinstance(first, GemmPlan):
        return first
    if arch.wgmma:
        turned = wgmma_plan(swap_operands(op), GemmShape(shape.n, shape.m, shape.k), threads, arch) if swap else _ALONE
        if isinstance(turned, GemmPlan):
            return replace(turned, swapped=True)
        first = f"{first}, and with operands swapped {turned}"
    second = mma_plan(op, shape, threads, arch)
    if isinstance(second, GemmPlan):
        return GemmPlan(second.inst, second.warps_m, second.warps_n, (f"no wgmma: {first}",))
    return GemmPlan("fma", 0, 0, (f"no wgmma: {first}", f"no mma: {second}"))


def wgmma_plan(op: TileOp, shape: GemmShape, threads: tuple[int, int], arch: Arch) -> GemmPlan | str:
    """The split over warpgroups, or why wgmma cannot be used."""
    if not arch.wgmma:
        return f"{arch.name} has none"
    count = threads[1] - threads[0]
    if count % WARPGROUP or threads[0] % WARPGROUP:
        return f"{count} threads from {threads[0]} are no whole warpgroups"
    if shape.m < WGMMA_M:
        return f"M = {shape.m} < {WGMMA_M}"
    return _operand_obstacle(op, shape) or _wgmma_split(op, shape, count // WARPGROUP)


def _operand_obstacle(op: TileOp, shape: GemmShape) -> str | None:
    a, b, c = op["a"].source, op["b"].source, op["c"].source
    if c.ty.storage_scope != FRAGMENT:
        return f"{c.name} is not a fragment"
    if b.ty.storage_scope not in SHARED_SCOPES:
        return f"{b.name} is not in shared memory"
    if a.ty.storage_scope not in (*SHARED_SCOPES, FRAGMENT):
        return f"{a.name} is neither a fragment nor in shared memory"
    if a.ty.storage_scope == FRAGMENT and op.attrs["trans_a"]:
        return f"{a.name} is transposed in registers"
    types = (dtype_of(a), dtype_of(b))
    if dtype_of(c) not in WGMMA_TYPES.get(types, ()):
        return f"{types[0]} x {types[1]} -> {dtype_of(c)} is no type triple of it"
    bits = bits_of(a)
    if shape.k % (WGMMA_K_BITS // bits):
        return f"K = {shape.k} is no multiple of {WGMMA_K_BITS // bits}"
    for buffer, mn_major in ((a, op.attrs["trans_a"]), (b, not op.attrs["trans_b"])):
        if buffer.ty.storage_scope in SHARED_SCOPES and mn_major and dtype_of(buffer) not in WGMMA_ANY_MAJOR:
            return f"{dtype_of(buffer)} {buffer.name} must have K contiguous"
    return _tile_obstacle(op["a"], bits) or _tile_obstacle(op["b"], bits)


def _tile_obstacle(region: Any, bits: int) -> str | None:
    """Descriptors address tiles that start at whole groups of 8 rows and at whole boxes of the widest swizzle."""
    buffer = region.source
    if buffer.ty.storage_scope not in SHARED_SCOPES:
        return None
    cols = const_int(buffer.ty.shape[-1])
    if cols is None or cols * bits % 128:
        return f"rows of {buffer.name} are no multiple of 16 bytes"
    steps = (8, best_swizzle(cols, bits) * 8 // bits)
    for (start, _, _), step in zip(tile_region(region), steps, strict=True):
        known = const_int(start)
        if known is None or known % step:
            return f"the tile of {buffer.name} starts at {start}, no constant multiple of {step}"
    return None


def _wgmma_split(op: TileOp, shape: GemmShape, groups: int) -> GemmPlan | str:
    integer = dtype_of(op["c"].source) == "int32"

    def legal(gm: int, gn: int) -> bool:
        n = shape.n // gn
        wide = n <= WGMMA_N_MAX and (not integer or n in (8, 24) or n % 16 == 0)
        return shape.m % (WGMMA_M * gm) == 0 and shape.n % (WGMMA_N_STEP * gn) == 0 and wide

    fits = [(g, groups // g) for g in range(1, groups + 1) if groups % g == 0 and legal(g, groups // g)]
    if not fits:
        return f"no warp partition of {shape.m} x {shape.n} over {groups} warpgroups"
    # Rows first: one wide n instruction reads the least shared memory. full_col asks for the other end.
    gm, gn = fits[0] if op.attrs["policy"] == "full_col" else fits[-1]
    return GemmPlan("wgmma", gm, gn)


def mma_plan(op: TileOp, shape: GemmShape, threads: tuple[int, int], arch: Arch) -> GemmPlan | str:
    """The split over warps, or why mma.sync cannot be used."""
    a, b, c = op["a"].source, op["b"].source, op["c"].source
    for buffer, scopes in ((c, (FRAGMENT,)), (a, (FRAGMENT, *SHARED_SCOPES)), (b, (FRAGMENT, *SHARED_SCOPES))):
        if buffer.ty.storage_scope not in scopes:
            return f"{buffer.name} is in {buffer.ty.storage_scope} memory"
    types = (dtype_of(a), dtype_of(b))
    results, since = MMA_TYPES.get(types, ((), 0))
    if dtype_of(c) not in results:
        return f"{types[0]} x {types[1]} -> {dtype_of(c)} is no type triple of it"
    if arch.sm < since:
        return f"{arch.name} has no mma for {types[0]}"
    count = threads[1] - threads[0]
    if count % WARP or threads[0] % WARP:
        return f"{count} threads from {threads[0]} are no whole warps"
    step = WGMMA_K_BITS // bits_of(a)
    if shape.k % step:
        return f"K = {shape.k} is no multiple of {step}"
    wm, wn = _mma_split(shape, count // WARP, op.attrs["policy"])
    return (
        GemmPlan("mma", wm, wn)
        if wm
        else f"no valid warp partition of {shape.m} x {shape.n} over {count // WARP} warps"
    )


def _mma_split(shape: GemmShape, warps: int, policy: str) -> tuple[int, int]:
    """(warps along M, warps along N): the most balanced block for "square"; (0, 0) when nothing divides."""
    fits = [(w, warps // w) for w in range(1, warps + 1) if warps % w == 0]
    fits = [(w, v) for w, v in fits if shape.m % (MMA_M * w) == 0 and shape.n % (MMA_N * v) == 0]
    if not fits:
        return 0, 0
    keys: dict[str, Callable[[tuple[int, int]], Any]] = {
        "full_row": lambda f: -f[0],
        "full_col": lambda f: f[0],
        "square": lambda f: (abs(shape.m // f[0] - shape.n // f[1]), f[0]),
    }
    return min(fits, key=keys[policy])
