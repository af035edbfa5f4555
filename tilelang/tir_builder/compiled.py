# SPDX-License-Identifier: Apache-2.0
"""Compiles rewritten functions, once for each code, and binds them to the globals and closure of the original."""

from __future__ import annotations
import __future__

import ast
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from tilelang.support.positions import compile_tree
from tilelang.tir_builder.rewrite import rewrite
from tilelang.tir_builder.source import SourceFunction, source_of

__all__ = ["bound", "compile_source", "compiled", "source_of_code"]

_FUTURE_FLAGS = functools.reduce(
    lambda flags, name: flags | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0
)
_FACTORY = "__tb_factory"
_FUNCTION = "__tb_function"
# Code objects of rewritten functions (and of the lambdas in them), to find the user's line in a traceback.
_sources: dict[tuple[types.CodeType, str], SourceFunction] = {}
_compiled: dict[tuple[types.CodeType, str], tuple[types.CodeType, SourceFunction]] = {}


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _nested(constant)


def compiled(fn: Callable[..., Any]) -> tuple[types.CodeType, SourceFunction]:
    """The rewritten code of `fn` and its source. Raises catalogue errors for syntax that cannot be traced."""
    code = fn.__code__
    key = (code, code.co_filename)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = _compile(fn)
    return found


def _compile(fn: Callable[..., Any]) -> tuple[types.CodeType, SourceFunction]:
    source = source_of(fn)
    return compile_source(fn, source, rewrite(source)), source


def compile_source(fn: Callable[..., Any], source: SourceFunction, definition: ast.FunctionDef) -> types.CodeType:
    """The code of a rewritten definition of `fn`."""
    # A name of its own: the function's would hide the global or closure variable by which it calls itself.
    name, definition.name = definition.name, _FUNCTION
    # Free variables must be free in the new code too: they are the parameters of a function around it.
    factory = ast.FunctionDef(
        name=_FACTORY,
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(arg=v) for v in fn.__code__.co_freevars if v != "__class__"],
            kwonlyargs=[], kw_defaults=[], defaults=[],
        ),
        body=[definition],
        decorator_list=[],
    )  # fmt: skip
    if "type_params" in factory._fields:
        factory.type_params = []  # type: ignore[attr-defined]
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(factory, definition)], []))
    flags = fn.__code__.co_flags & _FUTURE_FLAGS
    top = compile_tree(module, source.file, flags)
    outer = next(c for c in top.co_consts if isinstance(c, types.CodeType) and c.co_name == _FACTORY)
    code = next(c for c in outer.co_consts if isinstance(c, types.CodeType) and c.co_name == _FUNCTION).replace(
        co_name=name
    )
    for inner in (code, *_nested(code)):
        _sources[inner, inner.co_filename] = source
    return code


def bound(fn: Callable[..., Any], code: types.CodeType) -> Callable[..., Any]:
    """A function of the rewritten code that sees what `fn` sees."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    return types.FunctionType(code, fn.__globals__, fn.__name__, None, closure)


def source_of_code(code: types.CodeType) -> SourceFunction | None:
    """The source that a code object was rewritten from, or None for ordinary code."""
    return _sources.get((code, code.co_filename))
