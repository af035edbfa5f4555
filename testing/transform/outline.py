# SPDX-License-Identifier: Apache-2.0
"""A kernel as a few lines of text: what passes did, without the noise."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import ASYNC_COPY, NUM_STAGES, PARALLEL, ROLE
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import as_list, bodies, const_int, launches
from tilelang.ir.tile_ops import TileOp
from tilelang.target.arch import ARCHS

SM90, SM80 = ARCHS["sm_90a"], ARCHS["sm_80"]


def outline(func: Any, scalars: bool = False) -> list[str]:
    """One line a statement of every launch, indented by nesting; stores to scalars and declarations only with
    `scalars`."""
    return [line for kernel in launches(func) for line in _lines(kernel.body, "", scalars)]


def _lines(stmts: list[Any], indent: str, scalars: bool) -> list[str]:
    out: list[str] = []
    for s in stmts:
        text = _line(s, scalars)
        if text is not None:
            out.append(indent + text)
        if not (isinstance(s, tirx.For) and PARALLEL in s.annotations):
            for n, body in enumerate(bodies(s)):
                if n and body:
                    out.append(indent + "else")
                out += _lines(body, indent + ("  " if text is not None or n else ""), scalars)
    return out


def _line(s: Any, scalars: bool) -> str | None:
    op = TileOp.from_stmt(s)
    if op is not None:
        return _tile_op(op)
    device = DeviceOp.from_node(s)
    if device is not None:
        return device.name
    if isinstance(s, tirx.AttrStmt):
        return f"role {s.value.value}" if s.attr_key == ROLE else None
    if isinstance(s, tirx.For):
        if PARALLEL in s.annotations:
            return ("async " if ASYNC_COPY in s.annotations else "") + "loop " + _store(s)
        stages = int(s.annotations.get(NUM_STAGES, 0))
        low = const_int(s.min)
        span = f"{s.extent}" if low == 0 else f"{s.min}..{s.min + s.extent}"
        return f"for {span}" + (f" stages={stages}" if stages else "")
    if isinstance(s, tirx.IfThenElse):
        return "if"
    if isinstance(s, tirx.While):
        return "while"
    if scalars and isinstance(s, tirx.BufferStore):
        return f"{s.buffer.name} = {s.value}"
    return None


def _tile_op(op: TileOp) -> str:
    names = [r.source.name if isinstance(r, ir.TensorRegion) else None for r in op.operands.values()]
    words = [op.name, *[n for n in names if n]]
    if op.attrs.get("via"):
        words.append(op.attrs["via"])
    if op.attrs.get("buffers"):
        words.append(op.attrs["buffers"])
    if "pending" in op.attrs:
        words.append(f"pending={op.attrs['pending']}")
    if op.name == "gemm":
        words += [
            w
            for w, on in (
                ("async", not op.attrs["sync"]),
                ("clear", str(op["clear"]).endswith("True)") or str(op["clear"]) == "True"),
            )
            if on
        ]
    return " ".join(words)


def _store(nest: Any) -> str:
    body = as_list(nest)
    while body and isinstance(body[0], tirx.For):
        body = as_list(body[0].body)
    stores = [s for s in body if isinstance(s, tirx.BufferStore)]
    return ", ".join(s.buffer.name for s in stores) or "?"
