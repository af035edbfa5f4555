# SPDX-License-Identifier: Apache-2.0
"""Mutants of a level-4 function: one synchronisation statement removed, moved or changed, or one fact of a transfer.

`mutants(func)` enumerates them mechanically; a mutant's name says what was done to which statement, so that the list of
survivors can speak of it. Names are stable while the statement's text is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, tirx

from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import as_list, as_stmt, bodies, const_int, substitute, walk_list, with_bodies
from tilelang.ir.tensor_map import spec_of_call, tensor_map
from tilelang.ir.walk import LOAD, collect, rewrite

SYNC = {
    "bar_arrive",
    "bar_arrive_after",
    "bar_sync",
    "bulk_commit",
    "bulk_wait",
    "bulk_wait_read",
    "cp_async_commit",
    "cp_async_wait",
    "fence_mbar_init",
    "fence_proxy_async",
    "mbar_arrive",
    "mbar_expect_only",
    "mbar_expect_tx",
    "mbar_init",
    "mbar_spin",
    "mbar_wait",
    "setmaxnreg_dec",
    "setmaxnreg_inc",
    "sync_threads",
    "syncwarp",
    "wgmma_commit",
    "wgmma_fence",
    "wgmma_wait",
}
Path = tuple[tuple[int, int], ...]  # (statement, which of its bodies) ... down to the list; (statement, -1) at the end
Edit = Callable[[list[Any], int], list[Any]]  # (the list, the statement's place in it) -> the new list


@dataclass(frozen=True)
class Mutant:
    name: str
    func: Any


def mutants(func: Any) -> list[Mutant]:
    """All mutants, in program order, with distinct names."""
    _RINGS.clear()
    _RINGS.update(_ring_sizes(func))
    top, out, seen = as_list(func.body), [], {}
    for path, stmts, at in _places(top, ()):
        for what, edit in _edits(stmts, at):
            name = f"{what}: {_brief(stmts[at])}"
            seen[name] = seen.get(name, 0) + 1
            name = name if seen[name] == 1 else f"{name} #{seen[name]}"
            out.append(Mutant(name, func.with_body(as_stmt(_edited(top, path, edit)))))
    return out


def _places(stmts: list[Any], path: Path) -> Iterator[tuple[Path, list[Any], int]]:
    for i, stmt in enumerate(stmts):
        yield (*path, (i, -1)), stmts, i
        for b, body in enumerate(bodies(stmt)):
            yield from _places(body, (*path, (i, b)))


def _edited(stmts: list[Any], path: Path, edit: Edit) -> list[Any]:
    (i, b), rest = path[0], path[1:]
    if b < 0:
        return edit(list(stmts), i)
    inner = bodies(stmts[i])
    inner[b] = _edited(inner[b], rest, edit)
    return [*stmts[:i], with_bodies(stmts[i], inner), *stmts[i + 1 :]]


def _brief(stmt: Any) -> str:
    """A statement in a line: compound ones by their first line and what they synchronise."""
    if isinstance(stmt, tirx.IfThenElse):
        inner = [DeviceOp.from_node(s) for s in walk_list(as_list(stmt.then_case))]
        ops = " ".join(dict.fromkeys(op.name for op in inner if op is not None))
        return f"if {_text(stmt.condition)}: {ops[:60]}"
    if isinstance(stmt, tirx.For):
        return f"for {stmt.loop_var.name}"
    return _text(stmt)


def _text(node: Any) -> str:
    line = " ".join(node.script().split("\n")[-1].split()) if hasattr(node, "script") else str(node)
    line = re.sub(r"T\.tl\.dev\.|T\.(?=[A-Z])|: T\.let\[T\.\w+\]", "", line)
    return re.sub(r"T\.address_of\((\w+\[.*?\])\)", r"\1", line)[:110]


_RINGS: dict[str, int] = {}  # of the function at hand: stage variable -> stages


def _ring_sizes(func: Any) -> dict[str, int]:
    """From `stage = select(stage == n - 1, 0, stage + 1)`."""
    wraps = [
        s for s in collect(func, tirx.BufferStore, lambda s: s.buffer.name.startswith("stage_"))
        if isinstance(s.value, tirx.Select) and isinstance(s.value.condition, tirx.EQ)
    ]  # fmt: skip
    return {s.buffer.name: 1 + int(s.value.condition.b) for s in wraps}


# -- what may be done to a statement


def _edits(stmts: list[Any], at: int) -> Iterator[tuple[str, Edit]]:
    stmt = stmts[at]
    op = DeviceOp.from_node(stmt)
    if _is_sync(stmt):
        if op is not None:  # of a branch, its ops are dropped
            yield "drop", lambda xs, i: xs[:i] + xs[i + 1 :]
        yield from _moves(stmts, at)
    if op is not None:
        yield from ((what, _replace(new)) for what, new in _changed_ops(op, stmt))
    elif isinstance(stmt, tirx.IfThenElse):
        yield from ((what, _replace(new)) for what, new in _changed_predicates(stmt))
    elif isinstance(stmt, tirx.BufferStore) and stmt.buffer.name.startswith(("stage_", "phase_")):
        yield from _changed_cursors(stmt)
    elif isinstance(stmt, tirx.Bind):
        yield from ((what, _replace(new)) for what, new in _changed_descriptors(stmt))
    elif isinstance(stmt, tirx.Evaluate) and "tensormap_encode" in str(stmt):
        yield from ((what, _replace(new)) for what, new in _changed_maps(stmt))


def _replace(new: Any) -> Edit:
    return lambda xs, i: [*xs[:i], new, *xs[i + 1 :]]


def _is_sync(stmt: Any) -> bool:
    """A synchronising op, or a branch with nothing but such ops and the stores of bulk groups."""
    op = DeviceOp.from_node(stmt)
    if op is not None:
        return op.name in SYNC
    if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        inner = [DeviceOp.from_node(s) for s in as_list(stmt.then_case)]
        return bool(inner) and all(o is not None and o.name in SYNC and o.name != "mbar_init" for o in inner)
    return False


def _matters(stmt: Any) -> bool:
    """Does a statement touch shared memory, tensors or other threads? Moving over anything else changes nothing."""
    if any(DeviceOp.from_node(s) is not None for s in walk_list([stmt])):
        return True
    shared = [
        x
        for x in collect(stmt, (LOAD, tirx.BufferStore))
        if "local" not in (x.buffer if isinstance(x, tirx.BufferStore) else x.source).ty.storage_scope
    ]
    return bool(shared)


def _moves(stmts: list[Any], at: int) -> Iterator[tuple[str, Edit]]:
    """Behind the next statement that matters, and in front of the one before. Orders that mean the same are left out:
    initialisations of barriers, and neighbours that are both waits or both arrivals."""
    mine = _kind(stmts[at])
    later = next((i for i in range(at + 1, len(stmts)) if _matters(stmts[i])), None)
    if later is not None and mine != "init" and (mine, _kind(stmts[later])) not in _COMMUTE:
        yield "later", lambda xs, i: [*xs[:i], *xs[i + 1 : later + 1], xs[i], *xs[later + 1 :]]
    sooner = next((i for i in range(at - 1, -1, -1) if _matters(stmts[i])), None)
    between = stmts[sooner:at] if sooner is not None else []
    needs = {v for v in collect(stmts[at], ir.Var)}
    bound = any(isinstance(s, tirx.Bind) and s.var in needs for s in between)
    if sooner is not None and not bound and mine != "init" and (_kind(stmts[sooner]), mine) not in _COMMUTE:
        yield "sooner", lambda xs, i: [*xs[:sooner], xs[i], *xs[sooner:i], *xs[i + 1 :]]


# Pairs (first, second) whose order does not matter. A byte count may go below zero before its expectation comes; a
# wgmma_fence orders registers and generic writes, not what the copy engine brought; waits for wgmma are of whole warps.
_COMMUTE = {
    *((a, b) for a in ("wait", "setmaxnreg") for b in ("wait", "setmaxnreg", "wgmma_fence")),
    *((a, a) for a in ("arrive", "init")),
    ("wgmma_fence", "wait"),
    ("mbar_expect_tx", "tma_load"),
    ("syncwarp", "wgmma_wait"),
    ("wgmma_wait", "syncwarp"),
}


def _kind(stmt: Any) -> str:
    names = [op.name for s in walk_list([stmt]) if (op := DeviceOp.from_node(s)) is not None]
    kinds = {_KIND.get(n, "tma_load" if n.startswith("tma_load") else n) for n in names}
    return kinds.pop() if len(kinds) == 1 else ""


_KIND = {
    "mbar_init": "init",
    "mbar_wait": "wait",
    "mbar_spin": "wait",
    "mbar_arrive": "arrive",
    "setmaxnreg_inc": "setmaxnreg",
    "setmaxnreg_dec": "setmaxnreg",
}


def _changed_ops(op: DeviceOp, stmt: Any) -> Iterator[tuple[str, Any]]:
    """Another number in a device op."""

    def build(**new: Any) -> Any:
        statics = {k: new.pop(k, v) for k, v in op.statics.items()}
        return device_op(op.name, *[new.get(k, v) for k, v in op.operands.items()], span=stmt.span, **statics)

    match op.name:
        case "mbar_init":
            yield "count+1", build(count=op["count"] + 1)
            if const_int(op["count"]) != 1:
                yield "count-1", build(count=op["count"] - 1)
        case "mbar_expect_tx" | "mbar_expect_only":
            yield "bytes+16", build(bytes=op["bytes"] + 16)
            yield "bytes/2", build(bytes=tirx.truncdiv(op["bytes"], 2))
        case "mbar_wait" | "mbar_spin":
            yield "parity", build(parity=op["parity"] ^ 1)
            yield from (("stage+1", build(bar=b)) for b in _next_slot(op["bar"]))
        case "mbar_arrive":
            yield from (("stage+1", build(bar=b)) for b in _next_slot(op["bar"]))
        case "bar_sync" | "bar_arrive" | "bar_arrive_after":
            yield "threads+32", build(threads=op["threads"] + 32)
            yield "threads-32", build(threads=op["threads"] - 32)
            if op.name != "bar_sync":
                yield "id+1", build(id=op["id"] + 1)
        case "wgmma_wait" | "cp_async_wait" | "bulk_wait" | "bulk_wait_read":
            yield "pending+1", build(pending=op.statics["pending"] + 1)
        case "setmaxnreg_inc" | "setmaxnreg_dec":
            yield "regs+8", build(regs=op.statics["regs"] + 8)
            other = "setmaxnreg_inc" if op.name.endswith("dec") else "setmaxnreg_dec"
            yield other, device_op(other, regs=op.statics["regs"])
    if op.name.startswith("tma_load"):
        yield from (("stage+1", build(dst=b)) for b in _next_slot(op.operands.get("dst")))
        yield from (("barrier stage+1", build(bar=b)) for b in _next_slot(op.operands.get("bar")))
    if op.name.startswith("tma_"):
        yield "column+8", build(c0=op["c0"] + 8)


def _next_slot(address: Any) -> Iterator[Any]:
    """The address with the ring's stage one further."""
    if address is None:
        return
    stages = [x for x in collect(address, LOAD) if x.source.name in _RINGS]
    if stages:
        stage = stages[0]
        count = _RINGS[stage.source.name]
        yield rewrite(address, {LOAD: lambda x: tirx.truncmod(x + 1, count) if x.source.same_as(stage.source) else x})


def _changed_predicates(stmt: Any) -> Iterator[tuple[str, Any]]:
    """Other threads: one more, none, or a boundary shifted by one warp."""
    if not any(DeviceOp.from_node(s) is not None for s in walk_list([stmt])):
        return
    condition = stmt.condition

    def build(new: Any) -> Any:
        return tirx.IfThenElse(new, stmt.then_case, stmt.else_case, span=stmt.span)

    if isinstance(condition, tirx.EQ):
        if _kind(stmt) in ("bulk_wait", "bulk_wait_read"):
            return  # groups belong to threads: another one has none to wait for
        yield "two threads", build(tirx.all(condition.a >= condition.b, condition.a <= condition.b + 1))
        if not _is_sync(stmt):
            yield "no thread", build(tirx.EQ(condition.a, condition.b - 4096))
    elif isinstance(condition, tirx.GE):
        yield "boundary+1", build(condition.a >= condition.b + 1)
        yield "boundary-1", build(condition.a >= condition.b - 1)
    elif isinstance(condition, tirx.LT):
        yield "boundary+1", build(condition.a < condition.b + 1)
        yield "boundary-1", build(condition.a < condition.b - 1)


def _changed_cursors(stmt: Any) -> Iterator[tuple[str, Edit]]:
    """The ring's cursor: not moved, or started elsewhere."""
    if isinstance(stmt.value, tirx.IntImm):
        yield "start", _replace(tirx.BufferStore(stmt.buffer, tirx.const(1, "int32"), stmt.indices, span=stmt.span))
    else:
        yield "drop", lambda xs, i: xs[:i] + xs[i + 1 :]


def _changed_descriptors(stmt: Any) -> Iterator[tuple[str, Any]]:
    """The swizzle and strides of a wgmma descriptor, and its ring stage."""
    for call in collect(stmt.value, ir.Call):
        op = DeviceOp.from_node(call)
        if op is None or op.name != "wgmma_desc":
            continue
        for what, new in _descriptor_fields(op):
            yield what, tirx.Bind(stmt.var, rewrite(stmt.value, {ir.Call: lambda x: new if x.same_as(call) else x}))
    for value in _next_slot(stmt.value):
        yield "stage+1", tirx.Bind(stmt.var, value)


def _descriptor_fields(op: DeviceOp) -> Iterator[tuple[str, Any]]:
    swizzle, names = op.statics["swizzle"], list(op.operands)
    yield "swizzle", device_op("wgmma_desc", *op.operands.values(), swizzle=64 if swizzle == 128 else 128)
    lead, stride = names[1], names[2]
    # K-major swizzled operands do not use the leading offset (PTX ISA 9.7.15.5.1.2.1); 16 stands there for "unused".
    for name in (lead, stride) if const_int(op[lead]) != 16 else (stride,):
        values = [v * 2 if n == name else v for n, v in op.operands.items()]
        yield f"{name}*2", device_op("wgmma_desc", *values, swizzle=swizzle)


def _changed_maps(stmt: Any) -> Iterator[tuple[str, Any]]:
    """Swizzle, box and pitch of a tensor map."""
    spec = spec_of_call(stmt.value)
    name = stmt.value.args[0]
    changes = {
        "swizzle": {"swizzle": 64 if spec.swizzle == 128 else 128},
        "box/2": {"box": (spec.box[0], spec.box[1] // 2, *spec.box[2:])},
        "pitch+16": {"strides": (spec.strides[0] + 16, *spec.strides[1:])},
    }
    for what, change in changes.items():
        var, (_, encode) = tensor_map("changed", replace(spec, **change))
        yield what, substitute(encode, {var: name})
