# SPDX-License-Identifier: Apache-2.0
"""What a lowering of one tile statement may ask: thread number, layouts, the flat buffers, barriers and scratch space.

The driver pass makes one context per group of threads that runs the statements. Every address of the flat buffers is
formed here: shared elements at `version * size + layout(index)`, fragment elements at the register of the layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir import attrs
from tilelang.ir.stmts import const_int, dtype_of, shape_of
from tilelang.layout import Swizzle
from tilelang.support.errors import InternalError, UserError

__all__ = [
    "Expr",
    "LowerContext",
    "LoweringError",
    "Stmt",
    "UnsupportedTileOp",
    "const",
    "is_fragment",
    "is_global",
    "is_shared",
    "relative",
    "scope_of",
]

Expr = Any
Stmt = Any


class LoweringError(InternalError):
    """A broken postcondition of an earlier pass: a layout that is missing or does not fit what is touched."""

    def __init__(self, message: str, span: Any = None) -> None:
        super().__init__(message, stage="lower", span=span)


class UnsupportedTileOp(UserError):
    """A form of a tile statement that cannot be lowered correctly."""

    code = "TL5301"
    message = "{what}"
    help = "{instead}"


def const(value: int, dtype: str = "int32") -> Expr:
    return tirx.const(value, dtype)


def scope_of(buffer: Any) -> str:
    return str(buffer.ty.storage_scope)


def is_global(buffer: Any) -> bool:
    return scope_of(buffer) in (attrs.GLOBAL, "")


def is_shared(buffer: Any) -> bool:
    return scope_of(buffer) in attrs.SHARED_SCOPES


def is_fragment(buffer: Any) -> bool:
    return scope_of(buffer) == attrs.FRAGMENT


def relative(layout: Any, first: int) -> Any:
    """A layout whose threads are counted from `first` on; layouts of memory stay."""
    return layout.shift(thread=-first) if first and "thread" in layout.axes else layout


@dataclass
class LowerContext:
    """The threads that run a statement and the placement of everything it touches."""

    arch: Any  # tilelang.target Arch
    thread: Expr  # int32 index of the executing thread, 0..threads-1 (numbers as in layouts)
    threads: int  # number of threads running this statement
    layouts: dict[Any, Any]  # fragment: ("thread", "reg"); shared: ("addr",) in elements
    registers: dict[Any, Any]  # fragment buffer -> flat local buffer
    shared: dict[Any, Any]  # logical shared buffer -> flat shared buffer of versions * size elements
    sync: Callable[[], Stmt] = lambda: tirx.Evaluate(0)  # a statement that synchronises exactly these threads
    allocs: list[Stmt] = field(default_factory=list)  # AllocBuffer statements of scratch buffers
    free: dict[Any, Any] = field(default_factory=dict)  # scratch buffers by who uses them, and their shape and type
    analyzer: Any = field(default_factory=sym.Analyzer)  # the driver binds block, thread and loop variables in scope
    extents: dict[Any, int] = field(default_factory=dict)  # surrounding loop variables with range [0, extent)
    settling: Any = None  # value that the last turn_pass waited for
    exact: bool = True  # float32 quotients are those of IEEE
    first: int = 0  # the number, in the block, of thread 0
    unroll: set[Any] = field(default_factory=set)  # found: surrounding loop variables that index registers
    vectors: bool = True  # may a thread access neighbours at once
    trusted: bool = False  # the elements of tensors that the statement at hand accesses exist

    def barrier(self) -> Stmt:
        """Synchronises exactly the `threads` threads."""
        return self.sync()

    def scratch(self, name: str, shape: Sequence[int], dtype: str) -> Any:
        """A flat shared buffer for the statement being lowered, which ends with a barrier of these threads: their next
        statement may get the same one."""
        key = (self.first, self.threads, tuple(shape), dtype)
        if key in self.free:
            return self.free[key]
        buffer = tirx.decl_buffer(
            tuple(shape), dtype, f"{name}_{len(self.allocs)}", scope=attrs.SHARED_DYN, layout=None
        )
        self.allocs.append(tirx.AllocBuffer(buffer))
        self.free[key] = buffer
        return buffer

    def layout(self, buffer: Any) -> Any:
        """The layout of an on-chip buffer."""
        if buffer not in self.layouts:
            raise LoweringError(f"no layout was inferred for {buffer.name}")
        return self.layouts[buffer]

    def register_file(self, buffer: Any) -> Any:
        """The flat local buffer of a fragment."""
        if buffer not in self.registers:
            raise LoweringError(f"fragment {buffer.name} has no registers")
        return self.registers[buffer]

    def shared_index(self, buffer: Any, indices: Sequence[Expr], align: int = 1) -> Expr:
        """Flat element index of a shared element.

        With `align` (a power of two that divides the index) the expression shows that it does:
        an XOR hides the alignment from the code generator, which then takes vectors apart."""
        layout, flat = self.layout(buffer), self.shared[buffer]
        versions: Expr = None
        if len(indices) == len(layout.shape) + 1:
            versions, *indices = indices
        if len(indices) != len(layout.shape):
            raise LoweringError(f"{buffer.name} has {len(layout.shape)} dimensions, indexed by {len(indices)}")
        from tilelang.transform.lower.symbolic import address  # it builds on this module

        swizzle = getattr(layout, "swizzle", None)
        if align > 1 and swizzle is not None:
            low = align.bit_length() - 1
            chunk = self.analyzer.simplify(replace(layout, swizzle=None).apply(*indices)["addr"] // align)
            at = Swizzle(swizzle.bits, swizzle.base - low, swizzle.shift)(chunk) * align
        else:
            at = address(layout, indices)
        if versions is not None:
            size = shape_of(flat)[0] // shape_of(buffer)[0]
            at = versions * size + at
        return const(at) if isinstance(at, int) else at

    def tile_offset(self, region: Any, unit: int = 1) -> Expr:
        """From the start of a shared buffer to the 2-D tile that a region's leading indices pick, `unit` an element."""
        buffer, layout, flat = region.source, self.layout(region.source), self.shared[region.source]
        offset: Expr = const(0)
        for k, r in enumerate(list(region.region)[: -min(2, len(layout.shape))]):
            # Negative: versions stand in front of the layout's dimensions.
            d = len(layout.shape) - len(region.region) + k
            step = math.prod(layout.shape[d + 1 :]) if d >= 0 else shape_of(flat)[0] // shape_of(buffer)[0]
            if const_int(r.min) != 0:
                offset = offset + r.min * (step * unit) if const_int(offset) != 0 else r.min * (step * unit)
        return offset

    def shared_load(self, buffer: Any, indices: Sequence[Expr]) -> Expr:
        return self.shared[buffer][self.shared_index(buffer, indices)]

    def local(self, name: str, size: int, dtype: str) -> Any:
        """A new per-thread array; the caller emits `tirx.AllocBuffer` of it."""
        return tirx.decl_buffer((size,), dtype, name, scope=attrs.LOCAL, layout=None)

    def element(self, buffer: Any) -> str:
        """Element type of a buffer."""
        return dtype_of(buffer)

    def var(self, name: str, dtype: str = "int32") -> Any:
        return tirx.Var(name, dtype)

    def within(self, var: Any, extent: Expr) -> None:
        """Tells the analyzer that var is in [0, extent)."""
        self.analyzer.bind(var, ir.Range.from_min_extent(const(0, dtype_of(var)), extent))
