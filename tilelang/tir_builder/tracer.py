# SPDX-License-Identifier: Apache-2.0
"""What the rewritten code calls: one `Tracer` an invocation of a traced function (`__tb__` in the rewritten source).

It knows the Python side (names, places, what is a compile-time value) and drives the `Builder`. Name rules: a name
bound to an expression is immutable, a name made by `T.alloc_var` is a variable and assignment stores to it; a name
bound in a device block is gone after it; a device loop may not carry a binding from one iteration to the next.
"""

from __future__ import annotations

import builtins
import functools
import re
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx

from tilelang.tir_builder import errors, values
from tilelang.tir_builder.branches import DeviceBranch, PythonBranch
from tilelang.tir_builder.builder import Builder, Frame
from tilelang.tir_builder.builtin_calls import BUILTIN_CALLS
from tilelang.tir_builder.dtypes import DType, cast_to
from tilelang.tir_builder.elements import read_attribute, read_element, store_element
from tilelang.tir_builder.helpers import light_version
from tilelang.tir_builder.limits import MAX_PYTHON_WHILE, check_python_trips
from tilelang.tir_builder.loops import Axis, LoopSpec, OpenLoop, leave_device_loop
from tilelang.tir_builder.source import Place
from tilelang.tir_builder.vectors import Vector

__all__ = ["Scope", "Tracer"]

_LOOP_KINDS = frozenset({"parallel", "pipelined", "serial", "unroll", "vectorized", "while"})


@dataclass
class Entry:
    """What is known of a name: its variable if it is one, the frame that bound it, the loops that read it."""

    cell: Any = None
    frame: Frame | None = None
    place: Place | None = None
    read_in: set[int] = field(default_factory=set)
    dead: str = ""  # why it may not be read: "gone" (defined in a closed block) or "stale" (bound anew in one)
    tensor: Any = None  # the buffer that was made for the name


class Scope:
    """The names of one invocation."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def leave(self, name: str, before: Entry | None) -> None:
        """A block that bound `name` closes; `before` is what the name was outside."""
        now = self.entries[name]
        self.entries[name] = Entry(
            None,
            before.frame if before else None,
            now.place,
            set(),
            "stale" if before and before.dead != "gone" else "gone",
        )


def _is_made_for(name: str, value: Any) -> bool:
    """Is it a buffer that got its own name from this one (made unique by a number)?"""
    return values.is_buffer(value) and re.fullmatch(rf"{re.escape(name)}(_\d+)?", value.name) is not None


class Tracer:
    """The rewritten code's view of the builder, for one invocation of a function or macro."""

    def __init__(self, builder: Builder, places: list[Place], *, is_macro: bool = False) -> None:
        self.builder = builder
        self.places = places
        self.scope = Scope()
        self.base = len(builder.frames)
        self.is_macro = is_macro
        self.returned: list[Any] = []  # variables among the returned values
        self.return_place: Place | None = None
        self._python_loop_base = 0

    # -- places and names ------------------------------------------------------------------------------------

    def at(self, index: int) -> None:
        """The statement at place `index` starts."""
        builder = self.builder
        builder.place = self.places[index]
        if builder.fresh:
            builder.fresh.clear()

    def enter_place(self, index: int) -> Place | None:
        """A part of the statement is evaluated at a place of its own; the result is the place around it."""
        outer, self.builder.place = self.builder.place, self.places[index]
        return outer

    def leave_place(self, outer: Place | None, value: Any) -> Any:
        """The value of that part."""
        self.builder.place = outer
        return value

    def use(self, name: str, value: Any) -> Any:
        """A watched name is read."""
        entry = self.scope.entries.get(name)
        if entry is None:
            return value
        if entry.dead:
            where = (errors.Note("it was bound here", entry.place.span),) if entry.place else ()
            kind = errors.AssignedInBranch if entry.dead == "stale" else errors.OutOfScope
            raise kind(name=name, notes=where)
        if self.builder.loops:
            for loop in self.builder.loops:
                if loop is not None:
                    entry.read_in.add(id(loop))
        return value

    def assign(self, name: str, value: Any) -> Any:
        """`name = value`; the result is what the Python name holds from now on."""
        builder = self.builder
        entry = self.scope.entries.get(name)
        value = values.fold(value)
        is_fresh = any(value is f for f in builder.fresh)
        if entry is not None and entry.cell is not None and not is_fresh:
            store_element(builder, entry.cell.source, list(entry.cell.indices), value)
            return entry.cell
        if entry is not None:
            self._check_carried(name, entry)
        if not is_fresh:
            value = self._bound(name, value)
        frame = builder.frames[-1]
        if isinstance(value, list | dict):
            builder.containers.setdefault(id(value), (value, frame))
        if entry is None or entry.frame is not frame:
            frame.bindings.append((self.scope, name, entry))
        made = _is_made_for(name, value) and (
            entry is None or entry.tensor is not None
        )  # no name for one after another
        self.scope.entries[name] = Entry(
            value if is_fresh else None, frame, builder.place, tensor=value if made else None
        )
        return value

    def rebind(self, name: str, value: Any) -> Any:
        """The statement `name = value`. Raises TensorRebound where a tile or tensor loses its name to what exists
        already."""
        value = values.fold(value)
        tensor = self._tensor_of(name)
        if tensor is not None and value is not tensor:
            self._check_rebound(name, tensor, value)
        return self.assign(name, value)

    def _tensor_of(self, name: str) -> Any:
        """The buffer that a name was made for: a parameter of the kernel, or what was allocated under it."""
        entry = self.scope.entries.get(name)
        if entry is not None:
            return entry.tensor
        params = () if self.is_macro else self.builder.params
        return next((p for p in params if values.is_buffer(p) and p.name == name), None)

    def _check_rebound(self, name: str, tensor: Any, value: Any) -> None:
        def refuse(instead: str) -> None:
            where = "tensor" if any(tensor is p for p in self.builder.params) else "tile"
            what = f"the {where} of shape {values.shape_of(tensor)}"
            raise errors.TensorRebound(name=name, what=what, value=values.describe(value), instead=instead)

        if isinstance(value, ir.TensorRegion) or (values.is_buffer(value) and self._is_named(value)):
            refuse(f"T.copy({value}, {name}) copies; another view of it gets a name of its own")
        if isinstance(value, int | float) and not isinstance(value, bool):
            refuse(f"T.fill({name}, {value}) fills it; {name}[i] = ... stores to an element")
        if values.is_scalar(value) and any(tensor is p for p in self.builder.params):
            refuse(f"{name}[i] = ... stores to an element")

    def _is_named(self, buffer: Any) -> bool:
        """Does another name of this function, or of its parameters, stand for the buffer already?"""
        known = (*self.builder.params, *(e.tensor for e in self.scope.entries.values()))
        return any(buffer is k for k in known)

    def _bound(self, name: str, value: Any) -> Any:
        """The value that a name keeps: expressions are bound once, inside a launch."""
        value = values.python_value(value)
        if isinstance(value, Vector):
            return value.map(lambda lane: self._bound(name, lane))
        if not values.is_scalar(value) or isinstance(value, ir.Var | tirx.IntImm | tirx.FloatImm):
            return value
        return self.builder.bind(value, name) if self.builder.on_device else value

    def _check_carried(self, name: str, entry: Entry) -> None:
        """A name read in a device loop must not be bound anew in it."""
        if entry.dead or not entry.read_in:
            return
        inner = self._frames_inside(entry.frame)
        if any(id(frame) in entry.read_in for frame in inner):
            note = (errors.Note("it was bound here", entry.place.span),) if entry.place else ()
            raise errors.LoopCarriedName(name=name, notes=note)

    def _frames_inside(self, frame: Frame | None) -> list[Frame]:
        frames = self.builder.frames
        index = next((i for i, f in enumerate(frames) if f is frame), -1)
        return [f for f in frames[index + 1 :] if f.kind in _LOOP_KINDS]

    def shared_value(self, value: Any) -> Any:
        """The value of `a = b = value`: evaluated once."""
        return self._snapshot(None, value)

    def _snapshot(self, name: str | None, value: Any) -> Any:
        """A value that later stores cannot change."""
        value = values.fold(value)
        if any(value is f for f in self.builder.fresh):
            return value
        return self._bound(name or "value", value)

    def elements(self, value: Any) -> Any:
        """A list, tuple or dict whose expressions later stores cannot change."""
        if isinstance(value, list):
            value[:] = [self.elements(v) for v in value]
            return value
        if type(value) is tuple:
            return tuple(self.elements(v) for v in value)
        if isinstance(value, dict):
            value.update((k, self.elements(v)) for k, v in list(value.items()))
            return value
        return self._snapshot(self.builder.hint("value"), value)

    def unpack(self, value: Any, spec: tuple[Any, ...]) -> Any:
        """The elements of `value` for the targets of `spec`, all evaluated before the first is assigned."""
        if isinstance(value, ir.Var) and not values.is_buffer(value):
            value = (value,)
        if isinstance(value, ir.Expr) or not isinstance(value, Iterable):
            raise errors.ElementCount(have=1, want=len(spec))
        items = list(value)
        star = next((i for i, s in enumerate(spec) if isinstance(s, str) and s.startswith("*")), None)
        if star is not None and len(items) >= len(spec) - 1:
            stop = len(items) - (len(spec) - 1 - star)
            items[star:stop] = [items[star:stop]]
        if len(items) != len(spec):
            raise errors.ElementCount(have=len(items), want=len(spec))
        return [self._unpacked(s, v) for s, v in zip(spec, items, strict=True)]

    def _unpacked(self, spec: Any, value: Any) -> Any:
        if isinstance(spec, tuple):
            return self.unpack(value, spec)
        return self._snapshot(spec.lstrip("*") if isinstance(spec, str) else None, value)

    def typed(self, annotation: Callable[[], Any], value: Any) -> Any:
        """The value of `x: T.int32 = value`; annotations that are no element types change nothing."""
        try:
            kind = annotation()
        except NameError:  # Python does not evaluate the annotations of locals
            return value
        return cast_to(value, kind) if isinstance(kind, DType) else value

    def declares(self, annotation: Callable[[], Any]) -> bool:
        """Does a bare `x: annotation` declare a parameter (eager style only)."""
        return False

    def declare(self, name: str, annotation: Any) -> Any:
        """The tensor of a declared parameter."""
        raise errors.UnsupportedSyntax(what="a tensor annotation in the body", instead="annotate the parameter")

    # -- expressions ------------------------------------------------------------------------------------

    def evaluate(self, value: Any) -> None:
        """An expression statement: calls with effects are kept, everything else has happened already."""
        if isinstance(value, tirx.Stmt):
            self.builder.emit(value)
        elif isinstance(value, ir.Call):
            self.builder.emit(tirx.Evaluate(value, span=self.builder.span))

    slice = staticmethod(builtins.slice)
    attribute = staticmethod(read_attribute)
    binary = staticmethod(values.binary)
    not_ = staticmethod(values.negate)
    negative = staticmethod(functools.partial(values.unary, "-"))
    positive = staticmethod(functools.partial(values.unary, "+"))
    invert = staticmethod(functools.partial(values.unary, "~"))

    def getitem(self, owner: Any, index: Any) -> Any:
        """`owner[index]`."""
        return read_element(self.builder, owner, index)

    def setitem(self, owner: Any, index: Any, value: Any) -> None:
        """`owner[index] = value`."""
        if isinstance(owner, list | dict):
            value = self._snapshot(None, value)
        store_element(self.builder, owner, index, value)

    def update(self, op: str, owner: Any, index: Any, value: Any) -> None:
        """`owner[index] op= value`."""
        if values.is_buffer(owner):
            old = read_element(self.builder, owner, index)
            if not isinstance(old, ir.TensorLoad):
                raise _update_of_tile(op, owner, f"the slice {old}", index)
            store_element(self.builder, owner, list(old.indices), self.arithmetic(op, old, value))
        else:
            store_element(
                self.builder, owner, index, self.arithmetic(op, read_element(self.builder, owner, index), value)
            )

    def augment(self, op: str, old: Any, value: Any) -> Any:
        """The new value of `name op= value`."""
        if values.is_buffer(old):
            raise _update_of_tile(op, old, f"the whole buffer {old.name}", ())
        if isinstance(old, list) and op == "+":
            self.builder.check_container(old)
            old += value
            return old
        return self.arithmetic(op, old, value)

    @staticmethod
    def arithmetic(op: str, a: Any, b: Any) -> Any:
        return values.binary(op, a, b)

    def compare(self, ops: tuple[str, ...], *operands: Any) -> Any:
        """A chain of comparisons; every operand has been evaluated once."""
        if len(ops) == 1:
            return values.compare(ops[0], *operands)
        parts = [values.compare(op, a, b) for op, a, b in zip(ops, operands, operands[1:], strict=False)]
        return values.all_of(parts)

    def and_(self, *thunks: Callable[[], Any]) -> Any:
        """`a and b`: the first operand that is false, or the last."""
        return values.last_of(self._operands("and", thunks))

    def or_(self, *thunks: Callable[[], Any]) -> Any:
        """`a or b`: the first operand that is true, or the last."""
        return values.first_of(self._operands("or", thunks))

    def both(self, *thunks: Callable[[], Any]) -> Any:
        """The truth of `a and b`."""
        operands = self._operands("and", thunks)
        return values.all_of(operands) if len(operands) > 1 else operands[0]

    def either(self, *thunks: Callable[[], Any]) -> Any:
        """The truth of `a or b`."""
        operands = self._operands("or", thunks)
        return values.any_of(operands) if len(operands) > 1 else operands[0]

    def _operands(self, op: str, thunks: tuple[Callable[[], Any], ...]) -> list[Any]:
        """The operands that the result depends on, as far as Python knows them: at least one."""
        found: list[Any] = []
        for n, thunk in enumerate(thunks, start=1):
            value = self._pure(thunk, op) if found else thunk()
            value = values.python_value(values.fold(value))
            if isinstance(value, ir.Expr):
                found.append(value)
            elif n == len(thunks) or bool(value) is (op == "or"):
                return [*found, value]
        return found

    def _pure(self, thunk: Callable[[], Any], op: str) -> Any:
        """An operand that the device may skip: evaluating it must not emit statements."""
        before = len(self.builder.frames[-1].stmts)
        value = thunk()
        if len(self.builder.frames[-1].stmts) != before:
            raise errors.MacroInExpression(what=op)
        return value

    def if_expression(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """`a if test else b`."""
        test = values.as_condition(test)
        if isinstance(test, bool):
            return then() if test else otherwise()
        a, b = self._pure(then, "if/else"), self._pure(otherwise, "if/else")
        return values.choose(test, a, b)

    @staticmethod
    def iterable(value: Any) -> Any:
        """An operand that Python is going to iterate over. Raises NotIterable for buffers and expressions."""
        if isinstance(value, ir.Expr):
            raise errors.NotIterable(what=values.describe(value))
        return value

    @staticmethod
    def members(value: set[Any]) -> set[Any]:
        """A set. Raises BadOperation where it holds device values: which of them are equal is not known."""
        unknown = next((v for v in value if isinstance(v, ir.Expr)), None)
        if unknown is not None:
            why = f"a set cannot hold {values.describe(unknown)}"
            raise errors.BadOperation(why=why, instead="use a tuple or a list: only the device knows which are equal")
        return value

    @staticmethod
    def decide(value: Any, as_truth: bool = True) -> Any:
        """A value that Python decides on. Raises NoTruthValue where only the device knows it."""
        value = values.python_value(values.fold(value))
        parts = value if isinstance(value, tuple | list) and not as_truth else (value,)
        if any(values.is_scalar(part) for part in parts):
            raise errors.NoTruthValue()
        return values.as_condition(value) if as_truth else value

    def callee(self, function: Any) -> Any:
        """A function about to be called: plain helpers of the user's get their light version."""
        if isinstance(function, types.FunctionType):
            light = light_version(function)
            return function if light is None else functools.partial(light, self)
        if isinstance(function, types.MethodType):
            light = light_version(function.__func__)
            return function if light is None else functools.partial(light, self, function.__self__)
        if isinstance(function, functools.partial):
            return functools.partial(self.callee(function.func), *function.args, **function.keywords)
        if isinstance(function, tirx.PrimFunc):
            raise errors.UnsupportedSyntax(what="calling a T.prim_func", instead="make it a @T.macro, which is inlined")
        if isinstance(function, ir.Expr):
            why = f"{values.describe(function)} cannot be called"
            raise errors.BadOperation(why=why, instead="elements are read with brackets: A[i]")
        if isinstance(function, types.BuiltinMethodType) and isinstance(function.__self__, list | dict | set):
            return functools.partial(self._container_method, function)
        call = getattr(type(function), "__call__", None)  # noqa: B004 - the method, to look at its code
        light = light_version(call) if isinstance(call, types.FunctionType) else None
        return function if light is None else functools.partial(light, self, function)

    def _container_method(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """A method of a Python container: it acts once, while tracing, and finds only what Python knows."""
        owner, name = method.__self__, method.__name__
        if name in _CHANGES:
            self.builder.check_container(owner)
        if name in _LOOKUPS and args:
            key = values.python_value(values.fold(args[0]))
            if values.is_scalar(key):
                raise errors.ContainerIndex(kind=type(owner).__name__, index=values.describe(key))
        return method(*args, **kwargs)

    def builtin(self, function: Any) -> Any:
        """A Python builtin called by name, or its device version."""
        return BUILTIN_CALLS.get(function, function) if isinstance(function, type | _BUILTIN_TYPE) else function

    # -- control flow ------------------------------------------------------------------------------------

    def if_(self, test: Any) -> Any:
        """Open an `if`: a Python choice or a device branch."""
        test = values.as_condition(test)
        return PythonBranch(test) if isinstance(test, bool) else DeviceBranch(self.builder, test)

    def while_(self, test: Callable[[], Any], constant: bool) -> Iterator[None]:
        """A device loop, or iterations of Python for a condition that Python knows. Raises EndlessLoop for one that
        is true and `constant`: it reads no name."""
        builder = self.builder
        frame = Frame("while", builder.span)
        condition = self._while_condition(test, frame)
        if not isinstance(condition, bool):
            return self._while(condition, frame)
        if condition and constant:
            raise errors.EndlessLoop(often="always true")
        if not condition:
            warnings.warn(f"{builder.place.span}: the condition of this `while` is false", stacklevel=3)  # type: ignore[union-attr]
            return iter(())
        return self._unrolled(self._while_known(test, frame))

    def _while_condition(self, test: Callable[[], Any], frame: Frame) -> Any:
        """The condition as it is now: a bool, or an expression, whose names are then read in every iteration."""
        loops = self.builder.loops
        loops.append(frame)
        condition = values.as_condition(self._pure(test, "while"))
        loops.pop()
        if isinstance(condition, bool):
            for entry in self.scope.entries.values():
                entry.read_in.discard(id(frame))
        return condition

    def _while_known(self, test: Callable[[], Any], frame: Frame) -> Iterator[None]:
        """An item for every iteration that Python runs; the condition was true before the first."""
        builder = self.builder
        place = builder.place
        for _ in range(MAX_PYTHON_WHILE):
            yield None
            builder.place = place
            condition = self._while_condition(test, frame)
            if not isinstance(condition, bool):
                why = "the condition of this `while` was a Python value first, and is a value of the device now"
                raise errors.BadOperation(
                    why=why, instead="make what changes a variable: n = T.alloc_var(dtype, init=...)"
                )
            if not condition:
                return
        raise errors.EndlessLoop(often=f"still true after {MAX_PYTHON_WHILE} iterations while tracing")

    def _while(self, condition: ir.Expr, frame: Frame) -> Iterator[None]:
        builder = self.builder
        span = builder.span
        builder.push("while", frame)
        builder.loops.append(frame)
        yield None
        builder.loops.pop()
        builder.emit(tirx.While(condition, builder.pop(frame), span=span))

    def for_(self, iterable: Any, spec: Any) -> Iterator[Any]:
        """A device loop (one trip, for tracing) or the items of a Python iterable."""
        builder = self.builder
        if isinstance(iterable, builtins.range):
            iterable = LoopSpec("serial", (Axis(iterable.start, iterable.stop, iterable.step),))
        if hasattr(iterable, "trace"):  # a loop of the language with a shape of its own
            return iterable.trace(builder, spec)
        if not isinstance(iterable, LoopSpec):
            if isinstance(iterable, ir.Expr) or not isinstance(iterable, Iterable):
                raise errors.NotIterable(what=values.describe(iterable))
            return self._unrolled(iterable)
        return self._loop(OpenLoop(builder, iterable, _loop_names(spec, len(iterable.axes))), spec)

    def _loop(self, loop: OpenLoop, spec: Any) -> Iterator[Any]:
        builder = self.builder
        builder.loops.append(loop.frame)
        many = len(loop.values) > 1 or isinstance(spec, tuple)
        yield loop.values if many else loop.values[0]
        builder.loops.pop()
        loop.close()

    def _unrolled(self, iterable: Iterable[Any]) -> Iterator[Any]:
        loops = self.builder.loops
        depth, outer = len(loops), self._python_loop_base
        for trips, item in enumerate(iterable):
            check_python_trips(trips)
            loops.append(None)
            self._python_loop_base = len(self.builder.frames)
            try:
                yield item
            finally:
                del loops[depth:]
                self._python_loop_base = outer

    def break_(self) -> bool:
        """Emit a break of the device loop, or tell the unrolled Python loop to stop (True)."""
        return self._leave_loop("break", tirx.Break)

    def continue_(self) -> bool:
        return self._leave_loop("continue", tirx.Continue)

    def _leave_loop(self, what: str, node: Any) -> bool:
        builder = self.builder
        if not builder.loops:
            raise errors.LoopControl(what=what, why="is not inside a loop", instead="remove it")
        loop = builder.loops[-1]
        if loop is None:
            if len(builder.frames) != self._python_loop_base:
                why = "stands under a device condition, but its loop is unrolled by Python"
                raise errors.LoopControl(what=what, why=why, instead="iterate over T.serial(...) to get a device loop")
            return True
        leave_device_loop(builder, loop, what, node)
        builder.frames[-1].ended = True
        return False

    def with_(self, context: Any, spec: Any) -> Any:
        """The context manager of a `with`; frames of the language learn the names that they are bound to."""
        if hasattr(context, "target_names"):
            context.target_names = spec if isinstance(spec, tuple) else (spec,) if spec else ()
            return context
        return _Transparent(context) if hasattr(context, "__exit__") else context

    def raise_(self) -> None:
        """`raise` is Python's, while tracing: under a device condition it would not be conditional."""
        if self.builder.inside("then", "else", *_LOOP_KINDS) is not None:
            raise errors.UnsupportedSyntax(
                what="`raise` in a device loop or branch", instead="write T.device_assert(condition, message)"
            )

    def assert_(self, test: Any, message: Callable[[], Any] | None) -> None:
        """`assert`: Python's for Python values, a device assertion otherwise."""
        test = values.as_condition(test)
        text = str(message()) if message is not None and test is not True else ""
        if isinstance(test, bool):
            assert test, text
            return
        parts = [ir.StringImm(text or str(test))]
        self.builder.emit(tirx.AssertStmt(test, ir.StringImm("RuntimeError"), parts, span=self.builder.span))

    def return_(self, value: Any) -> Any:
        """The result of a function or macro, outside device control flow."""
        if len(self.builder.frames) != self.base:
            raise errors.ReturnInBranch()
        cells = [e.cell for e in self.scope.entries.values() if e.cell is not None]
        parts = value if isinstance(value, tuple | list) else (value,)
        self.return_place = self.builder.place
        self.returned = [p for p in parts if any(p is c for c in cells)]
        return value


@dataclass(frozen=True)
class _Transparent:
    """A context manager of the user's that cannot hide an error: the statements behind it would be lost silently."""

    context: Any

    def __enter__(self) -> Any:
        return self.context.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self.context.__exit__(*exc)


_BUILTIN_TYPE = type(len)
# Methods of lists, dicts and sets that change them, and those whose first argument is compared with what they hold.
_CHANGES = frozenset(("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove")) | frozenset(
    ("reverse", "setdefault", "sort", "update")
)
_LOOKUPS = frozenset(("add", "count", "discard", "get", "index", "pop", "remove", "setdefault"))


def _loop_names(spec: Any, count: int) -> tuple[str, ...]:
    if isinstance(spec, str):
        return (spec,) * count if count == 1 else tuple(f"{spec}_{i}" for i in range(count))
    names = spec if isinstance(spec, tuple) else ()
    if spec is not None and len(names) != count:
        raise errors.ElementCount(have=count, want=len(names))
    return tuple(n if isinstance(n, str) else "i" for n in names) or ("i",) * count


def _update_of_tile(op: str, buffer: Any, what: str, index: Any) -> errors.WholeBufferUpdate:
    """The error for `what op= ...`, with the loop that says the same."""
    given = list(index) if isinstance(index, tuple | list) else [index]
    rank = len(buffer.ty.shape)
    dots = next((n for n, item in enumerate(given) if item is Ellipsis), len(given))
    given[dots : dots + 1] = [slice(None)] * (rank - len(given) + (dots < len(given)))
    names = iter("ijklmnpq")
    loops: list[str] = []
    indices: list[str] = []
    for item in given:
        if not isinstance(item, slice):
            indices.append(str(item))
            continue
        loops.append(next(names, "r"))
        indices.append(
            loops[-1] if item.start is None or values.static_int(item.start) == 0 else f"{item.start} + {loops[-1]}"
        )
    element = f"{buffer.name}[{', '.join(indices)}]"
    return errors.WholeBufferUpdate(op=f"{op}=", what=what, loops=", ".join(loops), element=element)
