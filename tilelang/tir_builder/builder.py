# SPDX-License-Identifier: Apache-2.0
"""The builder: a stack of frames that collect statements, and the facts of the function being traced.

One builder makes one PrimFunc. `Builder.current("copy")` gives the innermost one of this thread, for the functions of
the language; it raises where none is active. Each emitted statement carries the span of the user's statement.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.tir_builder import errors
from tilelang.tir_builder.limits import check_elements, check_statements
from tilelang.tir_builder.source import Place
from tilelang.tir_builder.vectors import split_type

__all__ = ["Builder", "Frame", "LaunchInfo"]

_state = threading.local()


@dataclass
class Frame:
    """A block whose statements are being collected. `bindings` undoes name bindings when it closes."""

    kind: str  # function | kernel | parallel | pipelined | serial | while | then | else | attr
    span: ir.Span | None
    stmts: list[tirx.Stmt] = field(default_factory=list)
    bindings: list[tuple[Any, str, Any]] = field(default_factory=list)  # scope, name, entry before
    ended: bool = False  # break or continue was emitted: what follows cannot run


@dataclass
class LaunchInfo:
    """The launch that is being traced: its block and thread indices with their extents."""

    blocks: list[ir.Var]
    threads: list[ir.Var]
    grid: list[Any]
    block: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict)  # AttrStmts around the body
    random: Any = None  # the generator that T.rng_init has started
    combiners: list[Any] = field(default_factory=list)  # of the open `with T.attr(T.comm_reducer(...), ...)`


class Builder:
    """Collects one function. Use as a context manager to make it the current one of this thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.place: Place | None = None
        self.frames: list[Frame] = [Frame("function", None)]
        self.loops: list[Frame | None] = []  # enclosing loops, innermost last; None is one unrolled by Python
        self.names: dict[str, int] = {}
        self.launch: LaunchInfo | None = None
        self.launches = 0
        self.statements = 0  # emitted so far
        self.func_attrs: dict[str, Any] = {}
        self.fresh: list[Any] = []  # variables made by the statement being traced
        self.containers: dict[int, tuple[Any, Frame]] = {}  # lists and dicts by id, with the frame that named them
        self.outputs: list[tuple[Any, Place | None]] = []  # T.empty tensors and where they are made
        self.workspaces: list[Any] = []  # T.alloc_global tensors
        self.eager: Any = None  # EagerState of an eager trace
        self.open_parallel: Any = None  # the OpenLoop of the T.Parallel nest being traced
        self.reducers: list[Any] = []
        self.params: list[Any] = []  # of the function, in order
        self.declarations: list[tirx.Stmt] = []  # made outside of launches, for all of them
        self.vectors: list[Any] = []  # buffers of vector types, whose last dimension are the lanes
        self.safe_values: list[tuple[ir.Var, Any]] = []  # what reads outside of a tensor give
        self.placements: list[Any] = []  # of tensors with layouts of their own, in the open launch
        self.parallel_vars: list[ir.Var] = []  # of the open T.Parallel nest, and bindings that depend on them

    # -- the current builder ----------------------------------------------------------------------------------------

    def __enter__(self) -> Builder:
        stack = _state.__dict__.setdefault("stack", [])
        stack.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _state.stack.pop()

    @staticmethod
    def current(name: str) -> Builder:
        """The active builder. Raises JITNoBuilderError, naming `T.<name>`, where there is none."""
        stack = getattr(_state, "stack", None)
        if not stack:
            raise errors.JITNoBuilderError(name=name)
        return stack[-1]

    @staticmethod
    def active() -> Builder | None:
        """The active builder, or None."""
        stack = getattr(_state, "stack", None)
        return stack[-1] if stack else None

    # -- places and names -------------------------------------------------------------------------------------------

    @property
    def span(self) -> ir.Span | None:
        """The span of the user's statement being traced."""
        return self.place.tvm_span if self.place is not None else None

    def hint(self, default: str) -> str:
        """The name that the user's statement assigns to, or `default`."""
        return (self.place.target if self.place is not None else "") or default

    def unique(self, name: str) -> str:
        """A name not used in this function before: `name`, `name_1`, ..."""
        if name not in self.names:
            self.names[name] = 0
            return name
        while True:
            self.names[name] += 1
            candidate = f"{name}_{self.names[name]}"
            if candidate not in self.names:
                self.names[candidate] = 0
                return candidate

    def var(self, name: str, dtype: str = "int32") -> Any:
        """A new scalar variable with a unique name."""
        return tirx.Var(self.unique(name), dtype)

    # -- statements -------------------------------------------------------------------------------------------------

    def emit(self, stmt: tirx.Stmt) -> None:
        """Append a statement to the innermost frame. Code after break or continue is dropped with a warning."""
        frame = self.frames[-1]
        if frame.ended:
            where = f"{self.place.span}: " if self.place is not None else ""
            warnings.warn(f"{where}this statement follows break or continue and cannot run", stacklevel=2)
            return
        if self.launch is None:
            _check_host(stmt)
        self.statements += 1
        check_statements(self.statements)
        frame.stmts.append(stmt)

    def tile_op(self, name: str, operands: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> None:
        """Emit a tile op. Raises TileOpInParallel inside a T.Parallel nest."""
        if self.inside("parallel") is not None:
            raise errors.TileOpInParallel(op=name)
        for operand in operands.values():
            if isinstance(operand, ir.TensorRegion):
                check_elements("elements of this tile", [r.extent for r in operand.region])
        self.emit(make_tile_op(name, operands, options, self.span))

    def store(self, buffer: Any, value: ir.Expr, indices: list[Any]) -> None:
        """Emit a store of an expression of the buffer's own type."""
        self.emit(tirx.BufferStore(buffer, value, indices, span=self.span))

    def bind(self, value: ir.Expr, name: str) -> Any:
        """Bind an expression to a new variable, which is returned."""
        var = tirx.Var(self.unique(name), value.ty)
        if self.parallel_vars and self.depends_on_parallel(value):
            self.parallel_vars.append(var)
        self.emit(tirx.Bind(var, value, span=self.span))
        return var

    def depends_on_parallel(self, value: Any) -> bool:
        """Does an expression differ between the iterations of the open T.Parallel nest."""
        if not isinstance(value, ir.Expr):
            return False
        found: list[ir.Var] = []
        tvm_ffi.structural_walk(value, (ir.Var, found.append), order="pre")
        return any(v.same_as(p) for v in found for p in self.parallel_vars)

    def check_index(self, buffer: Any, indices: list[Any]) -> None:
        """A per-thread array must not be indexed by a T.Parallel variable: any thread may run any iteration."""
        if self.parallel_vars and buffer.ty.storage_scope == attrs.LOCAL:
            for index in indices:
                if self.depends_on_parallel(index):
                    raise errors.LocalIndexedByParallel(name=buffer.name, index=index)

    def alloc(self, name: str, shape: tuple[Any, ...], dtype: str, scope: str) -> Any:
        """Allocate a buffer in the innermost frame."""
        element, lanes = split_type(dtype)
        if lanes > 1:
            shape, dtype = (*shape, lanes), element
        buffer = tirx.decl_buffer(shape, dtype, self.unique(name), scope=scope, layout=None)
        if lanes > 1:
            self.vectors.append(buffer)
        self.emit(tirx.AllocBuffer(buffer, span=self.span))
        return buffer

    def is_vector_element(self, buffer: Any, index: Any) -> bool:
        """Does an index into a buffer of a vector type name a whole vector, not one of its lanes."""
        if not any(buffer.same_as(v) for v in self.vectors):
            return False
        count = len(index) if isinstance(index, tuple | list) else 1
        return count == len(buffer.ty.shape) - 1

    def declare_in_launches(self, stmt: tirx.Stmt) -> None:
        """Emit a declaration; one made outside of a launch holds in every launch that follows."""
        if self.launch is None:
            self.declarations.append(stmt)
        else:
            self.emit(stmt)

    def alloc_var(self, name: str, dtype: str, scope: str = attrs.VAR) -> Any:
        """Allocate a scalar variable and return the expression that reads it."""
        cell = tirx.BufferLoad(self.alloc(name, (1,), dtype, scope), [tirx.const(0, "int32")])
        self.fresh.append(cell)
        return cell

    def reducer_of(self, buffer: Any) -> Any:
        """The reducer that a buffer is, or None."""
        return next((r for r in self.reducers if r.buffer.same_as(buffer)), None)

    def safe_value_of(self, buffer: Any) -> Any:
        """What reads outside of a tensor give, where the program says so."""
        return next((value for b, value in self.safe_values if b.same_as(buffer)), None)

    def is_placed(self, buffer: Any) -> bool:
        """Has a tensor a layout of its own in the open launch?"""
        return any(p.buffer.same_as(buffer) for p in self.placements)

    # -- frames -----------------------------------------------------------------------------------------------------

    def push(self, kind: str, frame: Frame | None = None) -> Frame:
        """Open a frame at the current place, a new one unless it is given."""
        frame = frame or Frame(kind, self.span)
        if kind == "kernel":
            frame.stmts += self.declarations
        self.frames.append(frame)
        return frame

    def pop(self, frame: Frame) -> tirx.Stmt:
        """Close `frame`, the innermost one, and return its body. Names bound in it go out of scope."""
        top = self.frames.pop()
        assert top is frame, f"frame {frame.kind} closed while {top.kind} is open"
        for scope, name, before in reversed(frame.bindings):
            scope.leave(name, before)
        return as_body(frame.stmts, frame.span)

    def inside(self, *kinds: str) -> Frame | None:
        """The innermost enclosing frame of one of these kinds."""
        return next((f for f in reversed(self.frames) if f.kind in kinds), None)

    def check_container(self, owner: Any) -> None:
        """A Python container must not change in a device loop or branch that began after it was made."""
        _, made_in = self.containers.get(id(owner), (None, None))
        for frame in reversed(self.frames):
            if frame is made_in or frame.kind in ("function", "kernel"):
                return
            raise errors.ContainerStore(kind=type(owner).__name__)

    @property
    def on_device(self) -> bool:
        """Is the code being traced part of a launch or of device control flow."""
        return len(self.frames) > 1


_HOST = (tirx.Bind, tirx.AssertStmt)


def _check_host(stmt: tirx.Stmt) -> None:
    """Outside of launches there are sizes, assertions and the launches. Raises HostStatement."""
    if isinstance(stmt, _HOST) or (isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent"):
        return
    what = _HOST_KINDS.get(type(stmt))
    op = TileOp.from_stmt(stmt)
    raise errors.HostStatement(what=f"T.{op.name}" if op is not None else what or "a statement")


_HOST_KINDS: dict[type[tirx.Stmt], str] = {
    tirx.BufferStore: "a store",
    tirx.For: "a loop",
    tirx.While: "a loop",
    tirx.IfThenElse: "a branch on a value known at the call",
}


def as_body(stmts: list[tirx.Stmt], span: ir.Span | None) -> tirx.Stmt:
    """One statement for a list of them."""
    if len(stmts) == 1:
        return stmts[0]
    if not stmts:
        return tirx.Evaluate(tirx.const(0, "int32"), span=span)
    return tirx.SeqStmt(stmts, span=span)
