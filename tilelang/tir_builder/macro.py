# SPDX-License-Identifier: Apache-2.0
"""Macros: functions of the language that are inlined where they are called.

Arguments that are expressions are bound once, so that the body sees one value however often it uses it; buffers and
Python values are passed as they are. A parameter annotated `T.Ref` receives the variable or element itself.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from tilelang.tir_builder import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.compiled import bound, compiled
from tilelang.tir_builder.source import source_of
from tilelang.tir_builder.specs import Ref
from tilelang.tir_builder.tracer import Entry, Tracer
from tilelang.tir_builder.values import describe, fold, is_scalar

__all__ = ["Macro", "needs_tracing"]


class Macro:
    """An inlined function. Calling it while tracing emits its body; its result is what it returns."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.signature = inspect.signature(fn)
        functools.update_wrapper(self, fn)
        self._refs: frozenset[str] | None = None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method, the macro receives the instance."""
        return self if instance is None else functools.partial(self, instance)

    @property
    def refs(self) -> frozenset[str]:
        """Names of the parameters passed by reference."""
        if self._refs is None:
            found = (n for n, a in self.fn.__annotations__.items() if _is_ref(a))
            self._refs = frozenset(found)
        return self._refs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = Builder.current(self.fn.__name__)
        code, source = compiled(self.fn)
        try:
            call = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise errors.BadCall(why=f"{self.fn.__name__}{self.signature}: {error}") from None
        call.apply_defaults()
        place, loops = builder.place, builder.loops
        tracer = Tracer(builder, source.places, is_macro=True)
        builder.loops = []
        for name, value in call.arguments.items():
            call.arguments[name] = self._argument(tracer, name, value)
        try:
            result = bound(self.fn, code)(tracer, *call.args, **call.kwargs)
        finally:
            builder.loops = loops
        builder.place = place
        builder.fresh = list(tracer.returned)
        return result

    def _argument(self, tracer: Tracer, name: str, value: Any) -> Any:
        value = fold(value)
        builder = tracer.builder
        if name in self.refs:
            if not isinstance(value, ir.TensorLoad):
                raise errors.ReferenceExpected(name=name, what=describe(value))
            tracer.scope.entries[name] = Entry(value, builder.frames[-1], builder.place)
            return value
        if not is_scalar(value) or isinstance(value, ir.Var | tirx.IntImm | tirx.FloatImm):
            return value
        return builder.bind(value, name) if builder.on_device else value


def needs_tracing(fn: Callable[..., Any]) -> bool:
    """Does a function store to elements, or have loops or `with` statements, which mean something on the device."""
    for node in ast.walk(source_of(fn).node):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.For | ast.While | ast.With):
            return True
    return False


def _is_ref(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split(".")[-1] == "Ref"
    return annotation is Ref
