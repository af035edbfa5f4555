# SPDX-License-Identifier: Apache-2.0
"""Which neighbours of a statement may change places with it, without anything being ordered less: the moves that are
no mutants.

A statement has *facets*: what its device ops do (from the rows' effects), and what it touches. Two statements that
follow each other may change places if all pairs of their facets may. "May" means that the new order holds whenever the
old one does, and that it cannot hang: a wait in front of an access instead of behind it, an arrival behind one, a
commit behind work that its group then has to wait for as well. What can hang is a mutant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import ir, tirx

from tilelang.ir.device.effects import Access, Arrive, Commit, Fence, GroupWait, Sync, Wait
from tilelang.ir.device.row import Kind
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import bodies, walk_list
from tilelang.ir.walk import LOAD, collect

__all__ = ["Orders", "calls_of", "expressions"]

ACCESS = "access"  # of shared memory or tensors, by the thread itself
REGISTERS = "registers"  # of a wgmma, by the thread itself
LOAD_TILE = "load"  # an asynchronous copy that completes on an mbarrier
WAIT, ARRIVE, ANNOUNCE, INIT, BUDGET = "wait", "arrive", "announce", "init", "budget"
LOCAL_INIT = "init local"  # of a barrier that only threads of the block use: no fence, only their barrier matters
WGMMA_FENCE, ASYNC_FENCE, INIT_FENCE = "fence wgmma", "fence proxy_async", "fence mbarrier_init"
COMPILER_FENCE = "fence compiler"  # no instruction: keeps uses of registers on their side
_BUDGETS = ("setmaxnreg_inc", "setmaxnreg_dec")


def expressions(stmt: Any) -> list[Any]:
    """A statement's own expressions, without those of the statements inside it."""
    if bodies(stmt):
        exprs = [getattr(stmt, f, None) for f in ("condition", "min", "extent")]
    elif isinstance(stmt, tirx.BufferStore):
        exprs = [stmt.value, *stmt.indices]
    else:
        exprs = [getattr(stmt, "value", None)]
    return [e for e in exprs if e is not None and hasattr(e, "ty")]


def calls_of(stmt: Any) -> list[DeviceOp]:
    """Device ops in a statement's own expressions."""
    found = [c for e in expressions(stmt) for c in collect(e, ir.Call)]
    return [op for c in found if (op := DeviceOp.from_node(c)) is not None]


class Orders:
    """Facets of the statements of one function."""

    def __init__(self, func: Any) -> None:
        self.operands: set[str] = set()  # local arrays that wgmma reads or writes
        for call in collect(func, ir.Call):
            op = DeviceOp.from_node(call)
            if op is not None and op.name in ("wgmma_ss", "wgmma_rs"):
                self.operands |= {v.name for o in ("d", "a") if o in op.operands for v in collect(op[o], ir.Var)}
        self.shared: set[str] = set()  # mbarriers that the async proxy or other blocks use
        for call in collect(func, ir.Call):
            op = DeviceOp.from_node(call)
            if op is not None and (op.name == "mbar_arrive_remote" or any(_lands(e) for e in op.effects)):
                self.shared |= _arrays(op["bar"])
        self._facets: dict[Any, frozenset[str]] = {}

    def facets(self, stmt: Any) -> frozenset[str]:
        """What a statement and those inside it do."""
        if stmt not in self._facets:
            self._facets[stmt] = frozenset(f for s in walk_list([stmt]) for f in self._own(s))
        return self._facets[stmt]

    def _own(self, stmt: Any) -> Iterator[str]:
        for op in calls_of(stmt):
            if op.name == "mbar_init" and not _arrays(op["bar"]) & self.shared:
                yield LOCAL_INIT
            else:
                yield from _of_op(op)
        loads = [x.source for e in expressions(stmt) for x in _loads(e)]
        stores = [stmt.buffer] if isinstance(stmt, tirx.BufferStore) else []
        for buffer in loads + stores:
            if "local" not in str(buffer.ty.storage_scope):
                yield ACCESS
            elif buffer.name in self.operands:
                yield REGISTERS

    def may_change_places(self, first: Any, second: Any) -> bool:
        """May `second` run in front of `first`?"""
        if _written(first) & _read(second) or _written(second) & _read(first):
            return False
        return all(_may(a, b) for a in self.facets(first) for b in self.facets(second))


def _lands(effect: Any) -> bool:
    return isinstance(effect, Access) and bool(effect.barrier)


def _arrays(address: Any) -> set[str]:
    """The array whose element is named (and cursors in its index)."""
    return {x.source.name for x in collect(address, LOAD)}


def _loads(expr: Any) -> list[Any]:
    """Loads in an expression, without the elements whose addresses are taken."""
    named = [c.args[0] for c in collect(expr, ir.Call) if getattr(c.op, "name", "") == "tirx.address_of"]
    return [x for x in collect(expr, LOAD) if not any(x.same_as(n) for n in named)]


def _of_op(op: DeviceOp) -> Iterator[str]:
    if op.name in _BUDGETS:
        yield BUDGET
    memory = {o.name for o in op.form.operands if o.kind in (Kind.SMEM, Kind.GMEM)}
    for e in op.effects:
        match e:
            case Access(group=g) if g:
                yield f"issue {g}"
            case Access(barrier=b) if b:
                yield LOAD_TILE
            case Access(operand=o) if o in memory:
                yield ACCESS
            case Arrive():
                yield INIT if e.init else ANNOUNCE if e.tx else ARRIVE
            case Wait(blocking=True):
                yield WAIT
            case Commit():
                yield f"commit {e.group}"
            case GroupWait():
                yield f"retire {e.group}"
            case Sync():
                yield f"sync {e.scope} {op['id'] if e.id else ''}{op['threads'] if e.threads else ''}"
            case Fence():
                yield f"fence {e.kind}"


def _may(a: str, b: str) -> bool:  # noqa: PLR0911 (a table in the order of its reasons)
    """May something that does `b` run in front of something that does `a`?"""
    kind_a, _, group_a = a.partition(" ")
    kind_b, _, group_b = b.partition(" ")
    if a == b and kind_a in (WAIT, ARRIVE, ANNOUNCE, INIT, BUDGET, "fence", "sync", "retire"):
        return True  # two of a kind
    if BUDGET in (a, b):  # budgets hold for a role, not from a place on; asking for more can wait for others
        return (b if a == BUDGET else a) not in (WAIT,) and "sync" not in (kind_a, kind_b)
    if WGMMA_FENCE in (a, b):  # orders registers
        return (b if a == WGMMA_FENCE else a) not in (REGISTERS, "issue wgmma")
    if REGISTERS in (a, b):
        return "issue wgmma" not in (a, b) and a != "retire wgmma"
    if COMPILER_FENCE in (a, b):
        return {a, b}.isdisjoint(("issue wgmma", "retire wgmma"))
    if kind_a == "commit":  # the group grows: its wait waits for more
        return not (kind_b == "retire" and group_a == group_b)
    if kind_b == "commit":
        return group_a != group_b or kind_a not in ("issue", "retire")
    if kind_b == "retire":  # earlier, it orders more; it never hangs
        return not (kind_a == "issue" and group_a == group_b)
    if kind_b == WAIT:  # earlier, it orders more; what others may wait for must not be kept back
        return kind_a in (ACCESS, "issue", "fence", INIT)
    if a in (ARRIVE, ANNOUNCE):  # later, it releases more
        return b in (ACCESS, LOAD_TILE, ARRIVE, ANNOUNCE) or kind_b in ("issue", "fence")
    if a == LOAD_TILE:  # bytes may land before they are announced, not behind an arrival that ends the phase
        return False
    if kind_a == kind_b == "init":
        return True
    return {a, b} in ({ASYNC_FENCE, INIT_FENCE}, {LOCAL_INIT, INIT_FENCE})


def _written(stmt: Any) -> set[str]:
    """Local arrays (and definitions) that a statement changes."""
    stores = [s.buffer.name for s in walk_list([stmt]) if isinstance(s, tirx.BufferStore)]
    return {*stores, *(s.var.name for s in walk_list([stmt]) if isinstance(s, tirx.Bind))}


def _read(stmt: Any) -> set[str]:
    return {v.name for s in walk_list([stmt]) for e in expressions(s) for v in collect(e, ir.Var)}
