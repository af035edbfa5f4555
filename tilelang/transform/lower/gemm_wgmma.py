# SPDX-License-Identifier: Apache-2.0
"""gemm on wgmma: descriptors of the shared operands, one m64nNkK instruction per block and k step.

Warpgroups split C by (warps_m, warps_n). A tile of A, B is a stack of swizzled boxes (layout/swizzle.py); offsets
that keep the
swizzle phase (whole 8-row groups, k steps inside a box row, whole boxes) move the descriptor by plain addition. A
stays in registers when it is a fragment. `sync=False` leaves the group in flight for wait_gemm. With `trans_c` the tile
of c is N x M: its fragment is the transposed accumulator, register for register.

Encodings: PTX ISA 9.7.15.5 (descriptors, strides by major-ness).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.analysis.copies import bits_of
from tilelang.ir.attrs import SHARED_SCOPES
from tilelang.ir.device_ops import advance_descriptor, device_op, registers, wgmma_k
from tilelang.ir.stmts import const_int, dtype_of
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import SharedTile, shared_tile_of
from tilelang.transform.errors import UnsupportedOperand
from tilelang.transform.lower.context import LowerContext

__all__ = ["lower_gemm_wgmma", "lower_wait_gemm"]

WARPGROUP = 128
INSTRUCTION_M = 64
MOST_HOISTED = 8  # descriptors of k steps that a compiler may compute in front of a loop and hold in registers


@dataclass(frozen=True)
class _Shared:
    """A shared operand: its boxes, where the region starts in them, and which way it is walked."""

    tile: SharedTile
    k_major: bool
    row: int
    col: int

    def byte(self, mn: int, k: int) -> int:
        """Byte offset of element (mn, k) of the region, before the swizzle."""
        row, col = (mn, k) if self.k_major else (k, mn)
        return self.tile._byte(self.row + row, self.col + col)

    def stride(self, mn: int, count: int) -> int | None:
        """Bytes between parts of `mn` elements along M or N; None when the parts do not lie at one stride, or a part
        begins inside a box and ends in the next: the instruction walks from box to box."""
        box = self.tile.box_cols
        if not self.k_major and count > 1 and mn % box and box % mn:
            return None
        at = [self.byte(part * mn, 0) - self.byte(0, 0) for part in range(count)]
        step = at[1] if count > 1 else 0
        return step if all(x == part * step for part, x in enumerate(at)) else None


def lower_gemm_wgmma(op: TileOp, ctx: LowerContext) -> list[Any]:
    """Statements of one gemm. Raises UnsupportedOperand when a region or layout has no descriptor form."""
    a, b, c = (op[x].source for x in "abc")
    (m, n), k = _extents(op["c"]), _extents(op["a"])[0 if op.attrs["trans_a"] else 1]
    m, n = (n, m) if op.attrs["trans_c"] else (m, n)
    groups_m, groups_n = op.attrs["warps_m"], op.attrs["warps_n"]
    blocks, width = -(-m // (INSTRUCTION_M * groups_m)), n // groups_n
    group = tirx.Var("warpgroup", "int32")
    out: list[Any] = [tirx.Bind(group, device_op("uniform", tirx.truncdiv(ctx.thread, tirx.const(WARPGROUP, "int32"))))]
    right = _shared(op, "b", op.attrs["trans_b"], ctx)
    desc_b = _descriptor(out, op, "b", right, ctx, tirx.truncdiv(group, tirx.const(groups_m, "int32")), width, groups_n)
    left = None
    desc_a = None
    if a.ty.storage_scope in SHARED_SCOPES:
        left = _shared(op, "a", not op.attrs["trans_a"], ctx)
        part = tirx.truncmod(group, tirx.const(groups_m, "int32")) if groups_n > 1 else group
        desc_a = _descriptor(out, op, "a", left, ctx, part, INSTRUCTION_M * blocks, groups_m)

    dtypes = ["tf32" if dtype_of(x) == "float32" else dtype_of(x) for x in (a, b)]
    statics = {
        "n": width,
        "a_dtype": dtypes[0],
        "b_dtype": dtypes[1],
        "acc_dtype": dtype_of(c),
        "tnsp_b": not right.k_major,
    }
    clear, step = const_int(op["clear"]), wgmma_k(dtypes[0])
    if k // step > MOST_HOISTED:
        desc_a, desc_b = (_here(out, x) for x in (desc_a, desc_b))
    if op.attrs["rewritten"] and clear != 1:  # else a compiler moves those writes down between the instructions (C7519)
        held = ctx.registers[c]
        out.append(device_op("reg_fence", held.data, regs=registers(held)))
    out.append(device_op("wgmma_fence"))
    for ks in range(k // step):
        mode = "acc" if ks or clear == 0 else "pred" if clear is None else "init"
        tail = [tirx.Not(op["clear"])] if mode == "pred" else []
        db = _step(desc_b, right.byte(0, ks * step) - right.byte(0, 0))
        for block in range(blocks):
            acc = tirx.address_of(ctx.registers[c][block * INSTRUCTION_M * width // WARPGROUP])
            if left is not None:
                da = _step(desc_a, left.byte(INSTRUCTION_M * block, ks * step) - left.byte(0, 0))
                out.append(
                    device_op(
                        "wgmma_ss", acc, da, db, *tail, tnsp_a=not left.k_major, mode=mode, span=op.span, **statics
                    )
                )
            else:  # registers of A: k steps inside a block, 4 of 32 bits each
                first = (block * (k // step) + ks) * 4 * 32 // bits_of(a)
                regs = tirx.address_of(ctx.registers[a][first])
                out.append(device_op("wgmma_rs", acc, regs, db, *tail, mode=mode, span=op.span, **statics))
    out.append(device_op("wgmma_commit"))
    if op.attrs["sync"]:
        out.append(_wait(0, [ctx.registers[x] for x in ((c,) if left is not None else (c, a))]))
    return out


def _step(descriptor: Any, offset: int) -> Any:
    return device_op("wgmma_advance", descriptor, bytes=offset) if offset else descriptor


def lower_wait_gemm(op: TileOp, ctx: LowerContext) -> Any:
    """The wait names the registers of the retired gemms, so that no use of them moves above it."""
    names = op.attrs["buffers"].split(",")
    return _wait(op.attrs["pending"], [flat for buffer, flat in ctx.registers.items() if buffer.name in names])


def _wait(pending: int, held: list[Any]) -> Any:
    return device_op("wgmma_wait", *[r.data for r in held], pending=pending, regs=registers(*held))


def _extents(region: Any) -> tuple[int, int]:
    rows, cols = (const_int(r.extent) for r in list(region.region)[-2:])
    assert rows is not None and cols is not None
    return rows, cols


def _shared(op: TileOp, name: str, k_major: bool, ctx: LowerContext) -> _Shared:
    region = op[name]
    pairs = op.attrs["pairs"] if name == "b" else 1
    tile = shared_tile_of(ctx.layout(region.source), bits_of(region.source), pairs)
    if tile is None or not tile.swizzle_bytes:
        raise UnsupportedOperand(
            span=op.span,
            op="wgmma",
            buffer=region.source.name,
            why="its layout is not made of swizzled boxes",
            fix="drop its layout annotation",
        )
    row, col = (const_int(r.min) for r in list(region.region)[-2:])
    if row is None or col is None or row % 8 or col % tile.box_cols:
        raise UnsupportedOperand(
            span=op.span,
            op="wgmma",
            buffer=region.source.name,
            why=f"its region does not start at a constant multiple of 8 rows and {tile.box_cols} columns",
            fix="copy the region to a buffer of its own",
        )
    return _Shared(tile, k_major, row, col)


def _here(out: list[Any], desc: Any) -> Any:
    """The descriptor as a value that is known here and not in front of the loop: its sums take no registers there."""
    if desc is None:
        return None
    var = tirx.Var(f"{desc.name}_here", "uint64")
    out.append(tirx.Bind(var, device_op("keep", desc, dtype="uint64")))
    return var


def _descriptor(
    out: list[Any], op: TileOp, name: str, operand: _Shared, ctx: LowerContext, part: Any, mn: int, parts: int
) -> Any:
    """Binds the descriptor of this warpgroup's part of a shared operand."""
    region, tile = op[name], operand.tile
    flat = ctx.shared[region.source]
    stride = operand.stride(mn, parts)
    if stride is None:
        raise UnsupportedOperand(
            span=op.span,
            op="wgmma",
            buffer=region.source.name,
            why=f"{parts} warpgroups cut its boxes",
            fix="use policy=GemmWarpPolicy.FullRow",
        )
    lbo, sbo, _ = tile.descriptor(operand.k_major)
    bits = bits_of(region.source)
    base = device_op(
        "wgmma_desc",
        tirx.address_of(flat[operand.byte(0, 0) * 8 // bits]),
        lbo,
        sbo,
        swizzle=tile.swizzle_bytes if tile.swizzle_bytes > 16 else 0,
    )
    if parts > 1:
        base = advance_descriptor(base, part * stride)
    start = tirx.Var(
        f"start_{region.source.name}", "uint64"
    )  # a definition of its own: hoist_invariants takes it out of loops
    out.append(tirx.Bind(start, base))
    offset = ctx.tile_offset(region, bits // 8)
    if const_int(offset) == 0:
        return start
    var = tirx.Var(f"desc_{region.source.name}", "uint64")
    out.append(tirx.Bind(var, advance_descriptor(start, offset)))
    return var
