# SPDX-License-Identifier: Apache-2.0
"""Plain Python helpers that a kernel calls: Python at trace time, but never a silent decision on a device value.

TVM's `a == b` is a deferred object whose truth is identity, so a helper saying `1 if i == 3 else 2` would quietly take
the second branch. Helpers are therefore rewritten lightly (`rewrite_lightly`). What has no source is left alone, and so
is what does not belong to the user.
"""

from __future__ import annotations

import ast
import sysconfig
import types
from pathlib import Path
from typing import Any

from tilelang.support.errors import UserError
from tilelang.tir_builder.compiled import compile_source, source_of_code
from tilelang.tir_builder.rewrite import BUILDER
from tilelang.tir_builder.rewrite_lightly import LightRewriter
from tilelang.tir_builder.source import SourceFunction, source_of, source_of_lambda

__all__ = ["light_version"]

_PACKAGE = str(Path(__file__).parents[1])
_FOREIGN = tuple({sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib")} | {_PACKAGE, "<"})
_SKIPPED = 0x20 | 0x80 | 0x100 | 0x200  # generators, coroutines: CO_GENERATOR, CO_COROUTINE, ...
_light: dict[tuple[types.CodeType, str], types.CodeType | None] = {}


def _rewrite_lightly(source: SourceFunction) -> ast.FunctionDef:
    node = source.node
    node.body = LightRewriter(source, frozenset()).block(node.body)
    node.decorator_list = []
    node.returns = None
    for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
        if arg is not None:
            arg.annotation = None
    # Defaults are given by the function object; here they only have to be as many.
    node.args.defaults = [ast.copy_location(ast.Constant(None), node) for _ in node.args.defaults]
    node.args.kw_defaults = [d and ast.copy_location(ast.Constant(None), node) for d in node.args.kw_defaults]
    node.args.posonlyargs = [ast.copy_location(ast.arg(arg=BUILDER), node), *node.args.posonlyargs]
    return ast.fix_missing_locations(node)


def light_version(fn: Any) -> types.FunctionType | None:
    """The rewritten form of a user's plain function, which takes the tracer first; None where it is left alone."""
    if not isinstance(fn, types.FunctionType) or fn.__code__.co_flags & _SKIPPED:
        return None
    code = fn.__code__
    if code.co_filename.startswith(_FOREIGN) or source_of_code(code) is not None:
        return None
    key = (code, code.co_filename)
    if key not in _light:
        _light[key] = _compile(fn)
    new = _light[key]
    if new is None:
        return None
    cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
    out = types.FunctionType(
        new, fn.__globals__, fn.__name__, fn.__defaults__, tuple(cells[n] for n in new.co_freevars)
    )
    out.__kwdefaults__ = fn.__kwdefaults__
    return out


def _compile(fn: types.FunctionType) -> types.CodeType | None:
    try:
        code = fn.__code__
        source = source_of_lambda(code) if code.co_name == "<lambda>" else source_of(fn)
        if source.node.name != code.co_name:
            return None
        return compile_source(fn, source, _rewrite_lightly(source))
    except (UserError, SyntaxError):  # no source, or syntax of its own: Python runs it as it is
        return None
