# SPDX-License-Identifier: Apache-2.0
"""Checks level 2 by brute force: every promise of decision 001 about layouts, element by element.

`check_layouts(func)` returns what is wrong, a line each; an empty list means that the function is laid out soundly. It
reads only the layouts written in the program, never how they were found. Meant for tests and for `TILELANG_VERIFY`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.analysis.layouts.edges import Demand
from tilelang.analysis.layouts.extract import extract, is_nest
from tilelang.analysis.layouts.program import Access, Everywhere, Gemm, Parallel, Program, RawUse, Reduce, View
from tilelang.analysis.layouts.rules import rules_of
from tilelang.ir.attrs import FRAGMENT, LAYOUT, LOOP_ID, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import FRAGMENT as FRAGMENT_AXES
from tilelang.layout import AnyLayout, is_injective, loads

__all__ = ["check_layouts", "read_layouts"]


def read_layouts(kernel: Kernel) -> dict[str, AnyLayout]:
    """The layout of every laid-out buffer of a kernel by name, those of views derived from what they view."""
    out: dict[str, AnyLayout] = {}
    for stmt in walk_list(kernel.body):
        text = _layout_text(stmt) if isinstance(stmt, tirx.AllocBuffer) else None
        if text is not None:
            out[stmt.buffer.name] = loads(text)
    for op in extract(kernel).ops:
        if isinstance(op, View) and op.src.name in out:
            out[op.dst.name] = out[op.src.name].reshape(op.dst.shape)
    return out


def check_layouts(func: Any) -> list[str]:
    """What is wrong with the layouts of a level-2 function; empty when nothing is."""
    return [text for kernel in launches(func) for text in _Checker(kernel).run()]


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.wrong: list[str] = []
        self.program: Program = extract(kernel)
        self.layouts = read_layouts(kernel)
        self.loops: dict[int, AnyLayout] = {}

    def run(self) -> list[str]:
        self.declarations()
        self.nests()
        if self.wrong:  # the rest needs all layouts
            return self.wrong
        for op in self.program.ops:
            match op:
                case Parallel():
                    self.parallel(op)
                case Everywhere() if not self.hands_out(op):
                    runs = np.zeros((1, self.kernel.threads), bool)
                    runs[:, op.threads[0] : op.threads[1]] = True
                    for a in op.accesses:
                        self.access(a, runs, op.place)
                case Reduce():
                    self.reduce(op)
                case Gemm() | RawUse():
                    self.demands(op)
        return self.wrong

    def hands_out(self, op: Everywhere) -> bool:
        """A store of one fragment element to shared memory, which those do that hold it."""
        site = self.program.sites[op.key]
        if not isinstance(site, tirx.BufferStore) or _scope(site.buffer) not in SHARED_SCOPES:
            return False
        return len(op.accesses) == 1 and isinstance(site.value, ir.TensorLoad)

    def say(self, text: str) -> None:
        self.wrong.append(text)

    def declarations(self) -> None:
        for stmt in walk_list(self.kernel.body):
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "annotate_layout":
                self.say(f"annotate_layout of {op['buffer'].source.name} is still there")
            if not isinstance(stmt, tirx.AllocBuffer) or _scope(stmt.buffer) not in (FRAGMENT, *SHARED_SCOPES):
                continue
            name = stmt.buffer.name
            layout, tile = self.layouts.get(name), self.program.tiles[name]
            if layout is None:
                self.say(f"{name} has no layout")
            elif layout.shape != tile.shape:
                self.say(f"{name} has shape {tile.shape}, its layout {layout.shape}")
            elif (layout.axes == FRAGMENT_AXES) != (tile.scope == "fragment"):
                self.say(f"{name} is in {tile.scope} memory, its layout is {layout}")
            elif not is_injective(layout):
                self.say(f"two elements of {name} share a place")
            elif tile.scope == "fragment" and int(layout.arrays["thread"].max()) >= self.kernel.threads:
                self.say(f"{name} lives in threads that do not exist")

    def nests(self) -> None:
        ids = []
        for key, stmt in self.program.sites.items():
            if not is_nest(stmt):
                continue
            ids.append(int(stmt.annotations.get(LOOP_ID, -1)))
            text = _layout_text(stmt)
            if text is None:
                self.say(f"the nest at {stmt.span} has no layout")
                continue
            self.loops[key] = loads(text)
        if len(set(ids)) != len(ids) or -1 in ids:
            self.say(f"loop ids are missing or repeated: {ids}")

    def parallel(self, op: Parallel) -> None:
        loop = self.loops[op.key]
        where = f"{op.place}: the nest"
        if loop.shape != op.extents or loop.axes != FRAGMENT_AXES:
            self.say(f"{where} over {op.extents} has layout {loop}")
            return
        lo, hi = int(loop.arrays["thread"].min()), int(loop.arrays["thread"].max())
        if lo < op.threads[0] or hi >= op.threads[1]:
            self.say(f"{where} runs on threads {lo}..{hi} outside {op.threads}")
            return
        if not is_injective(loop):
            self.say(f"{where} runs two iterations in one slot")
        if op.once and loop.replication > 1:
            self.say(f"{where} writes memory and runs iterations {loop.replication} times")
        runs = _owners(loop, self.kernel.threads)
        for access in op.accesses:
            if access.tile.scope == "fragment":
                self.access(access, runs, op.place, loop)

    def access(self, access: Access, runs: np.ndarray, place: str, loop: AnyLayout | None = None) -> None:
        """Runners hold the element; of a write, holders run the iteration. For all values of inner loops."""
        name, verb = access.tile.name, "writes" if access.write else "reads"
        if access.map is None:
            self.say(f"{place} {verb} {name} at an index without a map")
            return
        shape = access.map.shape
        index = np.indices(shape)
        at = access.map.apply(*index)
        dims = tuple(np.broadcast_to(np.asarray(at[f"d{k}"]), shape) for k in range(len(access.tile.shape)))
        element = np.ravel_multi_index(dims, access.tile.shape).reshape(len(runs), -1)
        for column in element.T:
            if wrong := self.mismatch(access, runs, column):
                self.say(f"{place} {verb} {name}: {wrong}")
                return
            if loop is not None and not self.same_registers(name, loop, column):
                self.say(f"{place} {verb} {name}: the register depends on the thread")
                return

    def mismatch(self, access: Access, runs: np.ndarray, element: np.ndarray) -> str:
        """Whether the threads that run iterations and those that hold their elements go together."""
        held = _owners(self.layouts[access.tile.name], self.kernel.threads)[element]
        cases = [(runs & ~held, "does not hold")] + ([(held & ~runs, "does not run")] if access.write else [])
        for bad, missing in cases:
            if bad.any():
                x, thread = (int(v) for v in np.argwhere(bad)[0])
                return f"thread {thread} {missing} element {int(element[x])}, iteration {x}"
        return ""

    def same_registers(self, name: str, loop: AnyLayout, element: np.ndarray) -> bool:
        """Iterations in one slot of the loop find their elements in one register, whatever the thread."""
        home = self.layouts[name]
        reg = np.full((int(np.prod(home.shape)), self.kernel.threads), -1)
        rows = np.arange(len(reg))[:, None]
        reg[rows, home.arrays["thread"].reshape(len(reg), -1)] = home.arrays["reg"].reshape(len(reg), -1)
        thread, slot = (loop.arrays[a].reshape(len(element), -1) for a in ("thread", "reg"))
        found = reg[element[:, None], thread]
        order = np.argsort(slot, axis=None, kind="stable")
        slots, found = slot.reshape(-1)[order], found.reshape(-1)[order]
        return not np.any((np.diff(slots) == 0) & (np.diff(found) != 0))

    def reduce(self, op: Reduce) -> None:
        """The holders of a result are the threads of its row (padding lanes of the row included)."""
        src, dst = self.layouts[op.src.name], self.layouts[op.dst.name]
        rows = _owners(src.drop(op.dim), self.kernel.threads)
        if np.any(_owners(dst, self.kernel.threads) != rows):
            self.say(
                f"{op.place}: the threads of a row of {op.src.name} and the holders of its result {op.dst.name} differ"
            )

    def demands(self, op: Gemm | RawUse) -> None:
        for edge in rules_of(op):
            if not isinstance(edge, Demand):
                continue
            layout = self.layouts[edge.var].canonical
            if not edge.soft and all(layout != x.canonical for x in edge.accept):
                self.say(f"{op.place}: {edge.var} is {layout}, the op takes {edge.accept[0]} ({edge.why})")


def _layout_text(stmt: Any) -> str | None:
    """The layout written on an allocation or a nest."""
    return str(stmt.annotations[LAYOUT]) if LAYOUT in stmt.annotations else None


def _scope(buffer: Any) -> str:
    return str(buffer.ty.storage_scope)


def _owners(layout: AnyLayout, threads: int) -> np.ndarray:
    """Boolean (elements, threads): who holds an element, or runs an iteration."""
    thread = np.broadcast_to(layout.arrays["thread"], (*layout.shape, layout.replication)).reshape(
        -1, layout.replication
    )
    out = np.zeros((len(thread), threads), bool)
    out[np.arange(len(thread))[:, None], thread] = True
    return out
