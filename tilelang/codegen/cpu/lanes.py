# SPDX-License-Identifier: Apache-2.0
"""What the lanes of a warp tell each other (shuffles, votes, reductions), for threads that run in lockstep.

An exchange inside an expression becomes statements before it: every active thread puts its operand into a slot, then
the result is read from the slots of others. A lane whose source is inactive or past the block gets its own value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tvm
from tvm import ir, tirx

from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.codegen.cpu.loops import cast, i32, loop
from tilelang.ir import walk
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import as_stmt

if TYPE_CHECKING:
    from tilelang.codegen.cpu.threads import _Mask, _Threads

__all__ = ["exchange"]

WARP = 32


def exchange(expr: Any, threads: _Threads, mask: _Mask | None, before: list[Any]) -> Any:
    """`expr` with the exchanges replaced by slots, which the statements appended to `before` fill."""

    def call(node: Any) -> Any:
        op = DeviceOp.from_node(node)
        if op is None:
            return node
        if op.name == "lane_id":
            return _thread_value(threads, "lane", "int32", lambda t: tirx.floormod(t, i32(WARP)), mask, before)
        if op.name == "elect_one":
            return _thread_value(
                threads, "elected", "bool", lambda t: tirx.floormod(t, i32(WARP)).equal(0), mask, before
            )
        if op.name.startswith("shfl_"):
            return _shuffle(op, threads, mask, before)
        if op.name in ("keep",):
            return op["x"]
        if op.name in _FOLDS or op.name.startswith("redux_"):
            return _fold(op, threads, mask, before)
        if op.name.startswith("match_"):
            return _match(op, threads, mask, before)
        if op.name in ("activemask", "uniform"):
            raise CpuUnsupported(what=op.name)
        return node

    return walk.rewrite(expr, {ir.Call: call})


def _slot_var(threads: _Threads, name: str, dtype: str) -> tuple[Any, Any]:
    """A Var that differs between threads, and the buffer with its values."""
    var = tirx.Var(name, dtype)
    threads.varying.vars.add(var)
    return var, threads.slot(var)


def _thread_value(threads: _Threads, name: str, dtype: str, value: Any, mask: _Mask | None, before: list[Any]) -> Any:
    var, slot = _slot_var(threads, name, dtype)
    before.append(threads.each(mask, lambda t: tirx.BufferStore(slot, value(t), [t])))
    return var


def _shuffle(op: DeviceOp, threads: _Threads, mask: _Mask | None, before: list[Any]) -> Any:
    dtype, width = op.statics["dtype"], int(op.statics["width"])
    amount = next(v for k, v in op.operands.items() if k != "x")
    given, got = (_slot_var(threads, n, dtype) for n in ("given", "got"))
    before.append(threads.each(mask, lambda t: tirx.BufferStore(given[1], cast(dtype, threads.at(op["x"], t)), [t])))

    def source(t: Any) -> Any:
        by = threads.at(amount, t)
        lane = tirx.floormod(t, i32(width))
        first = t - lane
        wanted = {
            "shfl_xor": lambda: lane ^ by,
            "shfl_down": lambda: lane + by,
            "shfl_up": lambda: lane - by,
            "shfl_idx": lambda: tirx.floormod(by, i32(width)),
        }[op.name]()
        there = first + wanted
        inside = tirx.all(wanted >= 0, wanted < width, there < threads.threads)
        if mask is not None:
            inside = tirx.And(inside, mask.buffer[tirx.Select(inside, there, t)])
        return tirx.Select(inside, there, t)

    before.append(threads.each(mask, lambda t: tirx.BufferStore(got[1], given[1][source(t)], [t])))
    return got[0]


def _match(op: DeviceOp, threads: _Threads, mask: _Mask | None, before: list[Any]) -> Any:
    """The lanes with the same value, gathered lane by lane; for match_all only where those are all active ones."""
    dtype = op.statics["dtype"]
    (_, given), (result, got) = _slot_var(threads, "given", dtype), _slot_var(threads, "matched", "uint32")
    others = threads.alloc((), "bool", "differs")
    bits = f"uint{tvm.DataType(dtype).bits}"

    def code(t: Any) -> Any:
        return given[t] if bits == dtype else tirx.reinterpret(bits, given[t])

    def lanes(t: Any, step: Any) -> Any:
        first = t - tirx.floormod(t, i32(WARP))
        return loop(i32(0), tirx.min(i32(WARP), i32(threads.threads) - first), lambda lane: step(lane, first + lane))

    def gather(t: Any) -> Any:
        def add(lane: Any, other: Any) -> Any:
            here = tirx.const(1, "bool") if mask is None else mask.buffer[other]
            bit = tirx.shift_left(tirx.const(1, "uint32"), cast("uint32", lane))
            same = tirx.EQ(code(t), code(other))
            differ = tirx.BufferStore(others, tirx.Or(others[t], tirx.And(here, tirx.Not(same))), [t])
            return as_stmt(
                [tirx.IfThenElse(tirx.And(here, same), tirx.BufferStore(got, got[t] | bit, [t]), None), differ]
            )

        none = tirx.const(0, "bool")
        start = [tirx.BufferStore(got, tirx.const(0, "uint32"), [t]), tirx.BufferStore(others, none, [t])]
        return as_stmt([*start, lanes(t, add)])

    before += [
        threads.each(mask, lambda t: tirx.BufferStore(given, cast(dtype, threads.at(op["x"], t)), [t])),
        threads.each(mask, gather),
    ]
    if op.name == "match_all":
        zero = tirx.const(0, "uint32")
        before.append(threads.each(mask, lambda t: tirx.IfThenElse(others[t], tirx.BufferStore(got, zero, [t]), None)))
    return result


# What a whole warp, or block, makes of the values of its threads.
_FOLDS = ("vote_any", "vote_all", "ballot", "sync_threads_count", "sync_threads_and", "sync_threads_or")


def _fold(op: DeviceOp, threads: _Threads, mask: _Mask | None, before: list[Any]) -> Any:
    """Votes and reductions: one total a warp (or block), kept at the slot of its first thread."""
    operand = "p" if op.name in _FOLDS else "x"
    dtype = str(op.form.result)
    start, step = _rule(op.name, dtype)
    total, (result, got) = threads.alloc((), dtype, "total"), _slot_var(threads, "folded", dtype)

    def first(t: Any) -> Any:
        return i32(0) if op.name.startswith("sync_threads_") else t - tirx.floormod(t, i32(WARP))

    def add(t: Any) -> Any:
        value = step(total[first(t)], threads.at(op[operand], t), tirx.floormod(t, i32(WARP)))
        return tirx.BufferStore(total, value, [first(t)])

    before += [
        threads.each(None, lambda t: tirx.BufferStore(total, start, [t])),
        threads.each(mask, add),
        threads.each(mask, lambda t: tirx.BufferStore(got, total[first(t)], [t])),
    ]
    return result


def _rule(name: str, dtype: str) -> tuple[Any, Any]:
    const = tirx.const
    return {
        "vote_any": lambda: (const(0, "bool"), lambda a, x, _: tirx.Or(a, x)),
        "vote_all": lambda: (const(1, "bool"), lambda a, x, _: tirx.And(a, x)),
        "ballot": lambda: (
            const(0, "uint32"),
            lambda a, x, lane: a | (cast("uint32", x) << cast("uint32", lane)),
        ),
        "sync_threads_or": lambda: (const(0, "bool"), lambda a, x, _: tirx.Or(a, x)),
        "sync_threads_and": lambda: (const(1, "bool"), lambda a, x, _: tirx.And(a, x)),
        "sync_threads_count": lambda: (const(0, "int32"), lambda a, x, _: a + cast("int32", x)),
        "redux_add": lambda: (const(0, dtype), lambda a, x, _: a + x),
        "redux_min": lambda: (tirx.max_value(dtype), lambda a, x, _: tirx.min(a, x)),
        "redux_max": lambda: (tirx.min_value(dtype), lambda a, x, _: tirx.max(a, x)),
        "redux_and": lambda: (~const(0, dtype), lambda a, x, _: a & x),
        "redux_or": lambda: (const(0, dtype), lambda a, x, _: a | x),
        "redux_xor": lambda: (const(0, dtype), lambda a, x, _: a ^ x),
    }[name]()
