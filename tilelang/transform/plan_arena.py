# SPDX-License-Identifier: Apache-2.0
"""Places shared buffers in one arena; buffers whose lives do not overlap share bytes.

Before:  alloc As (4, 128, 64); alloc C_stage (128, 128); alloc As_full (4,)
After:   alloc As {OFFSET: 0}; alloc C_stage {OFFSET: 0}; alloc As_full {OFFSET: 65536}

Requires: level 3, layouts on shared buffers.
Ensures:  OFFSET (bytes) on every shared and barrier allocation; tiles are 1024-aligned, as 128-byte swizzles and
          TMA ask; TILES on the function says where the elements of each tile lie.
Does not: order accesses to bytes that two buffers share: insert_sync sees the overlap and does.

Lives are counted in statements of the kernel's outermost list (of the consumers, when there are roles); a ring
buffer lives from the start, since its producer runs ahead. So does what several warpgroups stage for their stores: to
take over bytes, they would have to wait for each other.
"""

from __future__ import annotations

import json
import math
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.effects import touches
from tilelang.analysis.manual import user_barriers
from tilelang.analysis.views import bases
from tilelang.ir.attrs import ASYNC_COPY, BARRIER_SCOPE, LAYOUT, OFFSET, RING, SHARED_SCOPES, TILES
from tilelang.ir.stmts import Kernel, consumer_list, launches, map_kernels, rebuild, shape_of, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import loads as load_layout
from tilelang.layout import row_major
from tilelang.target.operands import TMA_SHARED_ALIGN

__all__ = ["arena_bytes", "buffer_bytes", "plan_arena"]

TILE_ALIGN = 1024  # PTX ISA 9.7.15.5.1: a 128-byte swizzle repeats every 1024 bytes
SMALL_ALIGN = 128


def plan_arena(func: Any, reuse: bool = True) -> Any:
    """The function with an arena offset on every shared buffer. `reuse=False` gives each its own bytes."""
    planned = map_kernels(func, lambda kernel: _plan(kernel, reuse))
    tiles = {a.buffer.name: _places(a) for k in launches(planned) for a in _allocs(k) if _is_tile(a.buffer)}
    return planned.with_attr(TILES, json.dumps(tiles)) if tiles else planned


def _places(alloc: Any) -> dict[str, Any]:
    """What turns an address into the program's own indices: the layout of one version, and the bytes of one."""
    shape, text = shape_of(alloc.buffer), alloc.annotations.get(LAYOUT)
    layout = (
        load_layout(str(text)) if text is not None else row_major(shape[1:] if RING in alloc.annotations else shape)
    )
    versions = math.prod(shape[: len(shape) - len(layout.shape)])
    return {
        "layout": layout.dumps(),
        "versions": versions,
        "bytes": buffer_bytes(alloc) // max(versions, 1),
        "bits": bits_of(alloc.buffer),
    }


def buffer_bytes(alloc: Any) -> int:
    """Bytes of a shared allocation: its layout's span (or its elements), times its versions."""
    buffer = alloc.buffer
    shape, text = shape_of(buffer), alloc.annotations.get(LAYOUT)
    if text is None:
        elements = math.prod(shape)
    else:
        layout = load_layout(str(text))
        versions = math.prod(shape[: len(shape) - len(layout.shape)])
        return versions * _version_bytes(layout, max(8, bits_of(buffer)), versions)
    return -(-elements * max(8, bits_of(buffer)) // 8)


def _version_bytes(layout: Any, bits: int, versions: int) -> int:
    """Bytes from one version to the next: each starts where the copy engine may, with the swizzle's phase 0."""
    swizzle = getattr(layout, "swizzle", None)
    period = TMA_SHARED_ALIGN << swizzle.bits if swizzle is not None else TMA_SHARED_ALIGN if versions > 1 else 1
    return -(-layout.span("addr") * bits // (8 * period)) * period


def arena_bytes(allocs: list[Any]) -> int:
    """Bytes of the arena that these planned allocations need."""
    ends = [int(a.annotations[OFFSET]) + buffer_bytes(a) for a in allocs if OFFSET in a.annotations]
    return max(ends, default=0)


def _plan(kernel: Kernel, reuse: bool) -> Kernel:
    allocs = _allocs(kernel)
    lives = _lives(consumer_list(kernel.body), allocs) if reuse else {}
    whole = (0, 1 << 30)
    placed: list[tuple[int, int, tuple[int, int]]] = []
    offsets: dict[Any, int] = {}
    for alloc in sorted(allocs, key=lambda a: (-buffer_bytes(a), a.buffer.name)):
        size, life = buffer_bytes(alloc), lives.get(alloc.buffer, whole)
        align = (
            TILE_ALIGN if size >= TILE_ALIGN else SMALL_ALIGN if alloc.buffer.ty.storage_scope != BARRIER_SCOPE else 8
        )
        at = 0
        for start, end, other in sorted(placed):
            if life[0] <= other[1] and other[0] <= life[1] and at < end and start < at + size:
                at = -(-end // align) * align
        placed.append((at, at + size, life))
        offsets[alloc.buffer] = at

    def note(stmt: Any) -> Any:
        if isinstance(stmt, tirx.AllocBuffer) and stmt.buffer in offsets:
            return tirx.AllocBuffer(
                stmt.buffer, {**dict(stmt.annotations), OFFSET: offsets[stmt.buffer]}, span=stmt.span
            )
        return stmt

    return kernel.with_body(rebuild(kernel.body, note))


def _allocs(kernel: Kernel) -> list[Any]:
    """The kernel's allocations in shared memory."""
    return [s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer) and _is_shared(s.buffer)]


def _is_tile(buffer: Any) -> bool:
    return buffer.ty.storage_scope in SHARED_SCOPES


def _is_shared(buffer: Any) -> bool:
    return _is_tile(buffer) or buffer.ty.storage_scope == BARRIER_SCOPE


def _lives(stmts: list[Any], allocs: list[Any]) -> dict[Any, tuple[int, int]]:
    """First and last statement that touches each shared tile."""
    lives: dict[Any, tuple[int, int]] = {}
    views = bases(stmts)
    whole = {views.get(b, b) for b in _unordered(stmts)}
    rings = {a.buffer for a in allocs if RING in a.annotations} - _stages_of_one(stmts)
    flying: set[Any] = set()  # operands of gemms that have not been waited for
    for i, stmt in enumerate(stmts):
        op = TileOp.from_stmt(stmt)
        found = {views.get(t.buffer, t.buffer) for t in touches(stmt)} | flying
        if op is not None and op.name == "gemm" and not op.attrs["sync"]:
            flying |= {r.source for r in op.reads}
        elif op is not None and op.name == "wait_gemm" and op.attrs["pending"] == 0:
            flying = set()
        for buffer in found:
            if buffer.ty.storage_scope in SHARED_SCOPES:
                first, _ = lives.get(buffer, (0 if buffer in rings else i, i))
                lives[buffer] = (first, i)
    return {b: life for b, life in lives.items() if b not in whole}


def _stages_of_one(stmts: list[Any]) -> set[Any]:
    """What store_tile stages where one warpgroup stores."""
    ops = (op for s in walk_list(stmts) if (op := TileOp.from_stmt(s)) is not None and op.name == "store_tile")
    return {op["stage"].source for op in ops if shape_of(op["stage"].source)[0] == int(op.attrs["slots"])}


def _unordered(stmts: list[Any]) -> set[Any]:
    """Buffers whose uses the program orders itself: transfers of its own, and, where it has barriers of its own, what
    is used inside branches (their threads run on beside the others)."""
    found: set[Any] = set()
    for s in walk_list(stmts):
        op = TileOp.from_stmt(s)
        if op is not None and op.name.startswith("tma_copy_"):
            found |= {r.source for r in op.operands.values() if isinstance(r, ir.TensorRegion)}
        elif isinstance(s, tirx.For) and int(s.annotations.get(ASYNC_COPY, 0)) == 2:
            found |= {t.buffer for t in touches(s)}
        elif op is None and isinstance(s, tirx.Evaluate):
            found |= {t.buffer for t in touches(s)}  # an address that is given away
    if user_barriers(stmts):
        found |= {t.buffer for s in walk_list(stmts) if isinstance(s, tirx.IfThenElse) for t in touches(s)}
    return found
