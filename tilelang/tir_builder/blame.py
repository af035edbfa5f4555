# SPDX-License-Identifier: Apache-2.0
"""From an exception to the user's token: fills in spans, and turns failures inside TVM into catalogue errors.

The rewritten code keeps source positions, so the traceback says which call of the user's was being evaluated. Where an
error names an argument (`arg="B"`), the span is narrowed to it.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from tvm import ir

from tilelang.support.diagnostics import Note, SourceSpan
from tilelang.support.errors import UserError
from tilelang.support.positions import position
from tilelang.tir_builder import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.compiled import source_of_code
from tilelang.tir_builder.source import SourceFunction, call_at, node_span
from tilelang.tir_builder.values import describe

__all__ = ["blame", "blame_annotation"]

_NEAR = 0.75  # how much two names must have in common for one to be taken for the other
# "must be real number, not Var", "does not support argument 0 of type Var"
_REFUSED_TYPE = re.compile(r"\b(?:not|of type) '?([\w.]+)")
_STORE_TO_EXPRESSION = re.compile(r"'(Var|TensorLoad)' object does not support item assignment")
_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")
_BUILDER_ERRORS = (TypeError, ValueError, RuntimeError, AttributeError)


def blame(exc: Exception, builder: Builder) -> Exception:
    """The exception to raise instead of `exc`: located, and of the catalogue if the language was misused."""
    hops = [(f, i) for f, i in _hops(exc.__traceback__) if source_of_code(f) is not None]
    span = _span(*hops[-1]) if hops else None
    if span is None and builder.place is not None:
        span = builder.place.span
    if isinstance(exc, UserError):
        if exc.span is None:
            exc.span = _narrowed(exc, hops, span)
            _add_macro_notes(exc, hops)
        return exc
    wrapped = _wrapped(exc)
    if wrapped is None:
        if sys.version_info >= (3, 11) and span is not None:
            exc.add_note(f"while tracing {span}")
        return exc
    if wrapped.span is None:
        wrapped.span = span
    elif span is not None:
        wrapped.notes.append(Note(f"in {_innermost(exc).tb_frame.f_code.co_name}, called from here", span))
    _add_macro_notes(wrapped, hops)
    return wrapped


def blame_annotation(exc: UserError, parameters: tuple[str, ...]) -> None:
    """Point at the argument of the call that declares a parameter, outside of any traced function, and name that
    parameter. `parameters` are those of the called function.
    """
    found = call_at(exc.caller) if exc.span is None and exc.caller is not None else None
    if found is None or exc.caller is None:
        return
    call, name = found
    keywords = {k.arg: k.value for k in call.keywords} if isinstance(call, ast.Call) else {}
    index = call.slice if isinstance(call, ast.Subscript) else None
    given = call.args if isinstance(call, ast.Call) else index.elts if isinstance(index, ast.Tuple) else [index]
    blamed = {**dict(zip(parameters, given, strict=False)), **keywords}.get(exc.arg)
    exc.span = exc.caller if blamed is None else node_span(exc.caller.file, blamed)
    if name:
        exc.notes.append(Note(f"in the annotation of {name}"))


def _hops(tb: types.TracebackType | None) -> list[tuple[types.CodeType, int]]:
    out = []
    while tb is not None:
        out.append((tb.tb_frame.f_code, tb.tb_lasti))
        tb = tb.tb_next
    return out


def _innermost(exc: Exception) -> types.TracebackType:
    """Where an exception was raised."""
    tb = exc.__traceback__
    assert tb is not None, "it was raised"
    while tb.tb_next is not None:
        tb = tb.tb_next
    return tb


def _span_in_python(exc: Exception) -> SourceSpan | None:
    """The place of an exception that a plain Python function raised."""
    tb = _innermost(exc)
    code = tb.tb_frame.f_code
    place = position(code, tb.tb_lasti)
    if place is None:
        return None
    return node_span(code.co_filename, ast.Pass(**dict(zip(_PLACE, place, strict=True))))


def _span(code: types.CodeType, lasti: int) -> SourceSpan | None:
    source, place = source_of_code(code), position(code, lasti)
    return source.span_at(*place) if source is not None and place is not None else None


def _add_macro_notes(exc: UserError, hops: list[tuple[types.CodeType, int]]) -> None:
    """Inside macros, say from where each was called."""
    seen = {exc.span}
    for (caller, lasti), (callee, _) in zip(hops[-2::-1], hops[:0:-1], strict=True):
        span = _span(caller, lasti)
        if span is not None and span not in seen and not callee.co_name.startswith("<"):
            seen.add(span)
            exc.notes.append(Note(f"in {callee.co_name}, called from here", span))


def _narrowed(exc: UserError, hops: list[tuple[types.CodeType, int]], span: SourceSpan | None) -> SourceSpan | None:
    """The span of the argument that the error speaks of, or the whole of `span`."""
    if exc.arg is None or not hops:
        return span
    code, lasti = hops[-1]
    source, place = source_of_code(code), position(code, lasti)
    if source is None or place is None:
        return span
    node = _argument(_call_at(source, place), exc)
    return source.span(node) if node is not None else span


def _call_at(source: SourceFunction, place: tuple[int, int, int, int]) -> ast.Call | None:
    """The call of the user's source at a position (the tree that was compiled is rewritten, so it is parsed anew)."""
    indented = source.lines[0][:1].isspace()
    text = "\n".join(["if 1:", *source.lines] if indented else source.lines)
    tree = ast.increment_lineno(ast.parse(text), source.first_line - 1 - indented)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            here = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
            if here == place:
                return node
    return None


def _argument(call: ast.Call | None, exc: UserError) -> ast.expr | None:
    if call is None or exc.arg is None:
        return None
    for keyword in call.keywords:
        if keyword.arg == exc.arg:
            return keyword.value
    index = exc.arg if isinstance(exc.arg, int) else _index_of(exc)
    return call.args[index] if index is not None and index < len(call.args) else None


def _index_of(exc: UserError) -> int | None:
    """The position of the named parameter in the language function that the user called."""
    tb = exc.__traceback__
    called = None
    while tb is not None:
        if source_of_code(tb.tb_frame.f_code) is not None:
            called = tb.tb_next
        tb = tb.tb_next
    while called is not None:
        code = called.tb_frame.f_code
        names = code.co_varnames[: code.co_argcount]
        if exc.arg in names:
            return names.index(exc.arg) - (names[:1] == ("self",))
        if code.co_flags & inspect.CO_VARARGS and str(exc.arg).isdigit():
            return int(str(exc.arg))
        called = called.tb_next
    return None


def _wrapped(exc: Exception) -> UserError | None:
    """A catalogue error for what TVM or Python say of a misuse; None for an exception of the user's own code."""
    tb = exc.__traceback__
    last: Any = None
    in_tvm = False
    while tb is not None:
        last = tb.tb_frame
        module = last.f_globals.get("__name__", "")
        in_tvm = in_tvm or module.split(".")[0] in ("tvm", "tvm_ffi")
        tb = tb.tb_next
    direct = last is not None and source_of_code(last.f_code) is not None
    ours = last is not None and last.f_globals.get("__name__", "").startswith("tilelang.")
    text = _first_line(str(exc))
    if isinstance(exc, NameError) and direct and last is not None:
        return _nameless(exc, last)
    if isinstance(exc, RecursionError):
        return errors.BadCall(why="the calls nest too deeply: a macro or a helper calls itself without an end")
    if isinstance(exc, ZeroDivisionError) and (direct or ours):
        return errors.DivisionByZero(quotient="this")
    if ours and (isinstance(exc, OverflowError) or text == "math domain error"):
        instead = "use a constant that its type holds; T.infinity(dtype) is its infinity"
        return errors.BadOperation(why=f"this constant is no finite number: {text}", instead=instead)
    if isinstance(exc, ValueError) and "and / or / not" in text:
        return errors.NoTruthValue()
    if direct and isinstance(exc, AttributeError) and isinstance(exc.obj, ir.Expr):
        return errors.NoAttribute(what=describe(exc.obj), name=exc.name)
    if isinstance(exc, TypeError) and not direct and _STORE_TO_EXPRESSION.fullmatch(text):
        return errors.StoreInPython(span=_span_in_python(exc))
    if (
        direct
        and last is not None
        and isinstance(exc, TypeError)
        and re.match(r"[\w.<>]+\(\) (missing|takes|got)", text)
    ):
        said = text.replace(".__init__()", "()").partition(". Did you mean")[0]  # Python 3.13 guesses
        return errors.BadCall(why=said + _nearest_keyword(said, last))
    if not in_tvm and _is_given_to_python(exc, text):
        instead = "functions of Python, math, numpy and torch run while tracing; use those of the language: T.exp, ..."
        return errors.BadOperation(why="a value of the device is given to a function of Python", instead=instead)
    if in_tvm or (isinstance(exc, TypeError) and (direct or ours)):
        return errors.BadOperation(why=text)
    return None


def _is_given_to_python(exc: Exception, text: str) -> bool:
    """Does a function of Python, math, numpy or torch refuse an expression, a tile or a tensor of the kernel?"""
    if isinstance(exc, ValueError):  # numpy asks for the elements of what is no number
        return text == "setting an array element with a sequence."
    if not isinstance(exc, TypeError):
        return False
    kinds = {kind.__name__ for kind in _kinds(ir.Expr)}
    return "TensorLoad" in text or any(word.split(".")[-1] in kinds for word in _REFUSED_TYPE.findall(text))


def _kinds(kind: type) -> Iterator[type]:
    """The class and all that derive from it."""
    yield kind
    for derived in kind.__subclasses__():
        yield from _kinds(derived)


def _nearest_keyword(said: str, frame: types.FrameType) -> str:
    """The parameter that an unexpected keyword is close to, as a question; "" where there is none."""
    match = re.match(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'", said)
    if match is None:
        return ""
    name, keyword = match.groups()
    modules = [v for v in frame.f_globals.values() if isinstance(v, types.ModuleType)]
    known = [vars(m)[name] for m in modules if name in getattr(m, "__all__", ()) and name in vars(m)]
    called = next(filter(callable, known), None)
    if called is None:
        return ""
    near = difflib.get_close_matches(keyword, inspect.signature(called).parameters, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _nameless(exc: NameError, frame: types.FrameType) -> UserError:
    """What a NameError of the kernel's own code means: a local without a value yet, or a name that nothing binds."""
    match = re.search(r"'([^']+)'", str(exc))
    name = match.group(1) if match else "a name"
    if isinstance(exc, UnboundLocalError) or "not defined" not in str(exc):
        return errors.UndefinedName(name=name)
    known = {**vars(builtins), **frame.f_globals, **frame.f_locals}
    holders = [k for k, v in known.items() if isinstance(v, types.ModuleType) and name in getattr(v, "__all__", ())]
    names = [k for k in known if not k.startswith("__")]
    near = [f"{k}.{name}" for k in holders] or difflib.get_close_matches(name, names, 1, _NEAR)
    instead = f"did you mean {near[0]}?" if near else "assign to it first, or take it from the factory of the kernel"
    return errors.UnknownPythonName(name=name, instead=instead)


def _first_line(text: str) -> str:
    """The telling part of a TVM message: its last non-empty line without the check's own words."""
    lines = [line.strip() for line in text.strip().split("\n") if line.strip() and not line.startswith("#")]
    line = lines[-1] if lines else text
    found = re.search(r"Check failed: .*? is false: (.*)", line)
    return found.group(1) if found else line
