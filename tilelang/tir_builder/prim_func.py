# SPDX-License-Identifier: Apache-2.0
"""From a Python function to a `tirx.PrimFunc`: parameters from annotations, one run of the rewritten body.

`trace_prim_func` is the lazy style (all parameters annotated in the signature). `run_traced` is what lazy functions,
eager functions and macros share.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.support.diagnostics import Note, SourceSpan
from tilelang.support.errors import UserError
from tilelang.tir_builder import errors
from tilelang.tir_builder.blame import blame
from tilelang.tir_builder.bounds import check_bounds
from tilelang.tir_builder.builder import Builder, as_body
from tilelang.tir_builder.compiled import bound, compiled
from tilelang.tir_builder.contention import check_contention
from tilelang.tir_builder.dtypes import DType, as_dtype, cast_to, dtype_of
from tilelang.tir_builder.outputs import check_outputs
from tilelang.tir_builder.source import Place, SourceFunction, source_of
from tilelang.tir_builder.specs import TensorSpec
from tilelang.tir_builder.tracer import Tracer
from tilelang.tir_builder.values import describe, is_buffer

__all__ = ["evaluate_annotations", "finish", "make_param", "run_traced", "trace_prim_func"]


def run_traced(fn: Callable[..., Any], builder: Builder, args: Any, kwargs: Any, tracer_type: Any = Tracer) -> Any:
    """Run the rewritten `fn` on `builder` and return what it returns and the tracer used."""
    code, source = compiled(fn)
    tracer = tracer_type(builder, source.places)
    return bound(fn, code)(tracer, *args, **kwargs), tracer


def evaluate_annotations(fn: Callable[..., Any], extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The annotations of `fn`; those kept as text are evaluated where the function was defined."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    names = {**(extra or {}), **{k: c.cell_contents for k, c in cells.items() if _filled(c)}}
    return {
        name: _evaluate(fn, name, a, names) if isinstance(a, str) and not isinstance(a, DType) else a
        for name, a in fn.__annotations__.items()
    }


def _evaluate(fn: Callable[..., Any], name: str, text: str, names: dict[str, Any]) -> Any:
    try:
        try:
            return eval(text, fn.__globals__, names)
        except NameError as unknown:
            instead = f"define it where {fn.__name__} is defined, or annotate with T.Tensor((...), dtype) or T.int32"
            raise errors.UnknownPythonName(name=unknown.name, instead=instead) from unknown
    except UserError as exc:
        args = source_of(fn).node.args
        every = (*args.posonlyargs, *args.args, *args.kwonlyargs)
        node = next((a.annotation for a in every if a.arg == name and a.annotation is not None), None)
        if node is not None:
            exc.span = source_of(fn).span(node)
            exc.notes.append(Note(f"in the annotation of {name}"))
        raise


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


# Numbers that no host has are passed in a type that holds them, and converted where they are used.
_PASSED_AS = {"bfloat16": "float32", "float4_e2m1fn": "float32", "int4": "int8", "uint4": "uint8"}


def make_param(builder: Builder, name: str, annotation: Any) -> Any:
    """What the body sees of the next parameter of the function, which an annotation describes; the parameter itself is
    the last of `builder.params`. Raises MissingAnnotation."""
    param = _param(builder, name, annotation)
    if is_buffer(param):
        builder.params.append(param)
        return param
    dtype = dtype_of(param)
    passed = "float32" if dtype.startswith("float8") else _PASSED_AS.get(dtype, dtype)
    builder.params.append(param if passed == dtype else tirx.Var(param.name, passed))
    return cast_to(builder.params[-1], dtype)


def _param(builder: Builder, name: str, annotation: Any) -> Any:
    if isinstance(annotation, TensorSpec):
        return annotation.buffer(builder.unique(name))
    if callable(getattr(annotation, "as_spec", None)):
        return annotation.as_spec().buffer(builder.unique(name))
    if annotation is inspect.Parameter.empty:
        raise errors.MissingAnnotation(name=name)
    try:
        dtype = as_dtype(annotation)
    except errors.UnknownDtype:
        if isinstance(annotation, str):
            raise
        raise errors.MissingAnnotation(name=name) from None
    builder.unique(name)
    if dtype == "handle":  # an address: an integer that T.make_tensor makes a tensor of
        builder.func_attrs[attrs.POINTERS] = [*builder.func_attrs.get(attrs.POINTERS, []), name]
        return tirx.Var(name, "int64")
    return tirx.Var(name, str(dtype))


def parameter_span(source: SourceFunction, name: str) -> SourceSpan:
    """Where the parameter is written."""
    args = source.node.args
    every = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
    node = next((a for a in every if a is not None and a.arg == name), source.node)
    return source.span(node)


def trace_prim_func(fn: Callable[..., Any], locals_of_caller: Mapping[str, Any] | None = None) -> tirx.PrimFunc:
    """Trace a function whose parameters are all annotated. Raises catalogue errors at the user's token."""
    if not isinstance(fn, types.FunctionType):
        raise errors.SourceUnavailable(name=getattr(fn, "__name__", repr(fn)))
    builder = Builder(fn.__name__)
    try:
        _, source = compiled(fn)
        annotations = evaluate_annotations(fn, locals_of_caller)
        by_name: dict[str, Any] = {}
        with builder:
            for parameter in inspect.signature(fn).parameters.values():
                name = parameter.name
                builder.place = Place(parameter_span(source, name))
                _check_form(parameter, builder.place.span)
                annotation = annotations.get(name, parameter.empty)
                by_name[name] = make_param(builder, name, annotation)
            positional, keywords = _split(fn, by_name)
            result, tracer = run_traced(fn, builder, positional, keywords)
        return finish(builder, builder.params, result, source, tracer.return_place)
    except Exception as e:  # located, then raised again: nothing is swallowed
        raise_located(e, builder)
        raise


_FORMS = {
    inspect.Parameter.POSITIONAL_ONLY: ("is positional-only", "drop the `/`"),
    inspect.Parameter.VAR_POSITIONAL: ("collects arguments", "name every parameter"),
    inspect.Parameter.VAR_KEYWORD: ("collects arguments", "name every parameter"),
}


def _check_form(parameter: inspect.Parameter, span: SourceSpan) -> None:
    form = _FORMS.get(parameter.kind)
    if form is None and parameter.default is not parameter.empty:
        form = ("has a default", "pass it at each call, or take it from the factory around the kernel")
    if form is not None:
        raise errors.ParameterForm(name=parameter.name, form=form[0], instead=form[1], span=span)


def raise_located(exc: Exception, builder: Builder) -> None:
    """Raise what `exc` means to the user, where that is another exception; else return."""
    better = blame(exc, builder)
    if better is not exc:
        raise better from exc


def _split(fn: Callable[..., Any], by_name: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    positional, keywords = [], {}
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = by_name[parameter.name]
        else:
            positional.append(by_name[parameter.name])
    return positional, keywords


def finish(
    builder: Builder, params: list[ir.Var], result: Any, source: SourceFunction, returned_at: Place | None = None
) -> tirx.PrimFunc:
    """The PrimFunc of a finished trace; returned T.empty tensors, then workspaces, become trailing parameters."""
    returned = list(result) if isinstance(result, tuple | list) else [] if result is None else [result]
    for value in returned:
        if not any(value is output for output, _ in builder.outputs):
            raise errors.ReturnValue(what=describe(value), span=returned_at.span if returned_at else None)
    for output, place in builder.outputs:
        if not any(output is v for v in returned):
            raise errors.MissingReturn(name=output.name, span=place.span if place else None)
    frame = builder.frames[0]
    if not builder.launches:
        raise errors.NoLaunch(name=builder.name, span=_head(source))
    _check_symbols([*params, *returned, *builder.workspaces], frame.stmts)
    check_bounds(frame.stmts)
    check_contention(frame.stmts)
    check_outputs(frame.stmts, returned)
    builder.place = Place(source.span(source.node))
    span = builder.span
    attributes = {"global_symbol": builder.name, "s_tir": True, **builder.func_attrs}
    if returned:
        attributes[attrs.NUM_OUTPUTS] = len(returned)
    if builder.workspaces:
        attributes[attrs.NUM_WORKSPACES] = len(builder.workspaces)
    every = [*params, *returned, *builder.workspaces]
    return tirx.PrimFunc(every, as_body(frame.stmts, span), attrs=ir.make_node("ir.DictAttrs", **attributes), span=span)


def _head(source: SourceFunction) -> SourceSpan:
    """The line of `def`."""
    node = source.node
    return source.span_at(node.lineno, node.col_offset, node.lineno, node.col_offset + len(f"def {source.name}"))


def _check_symbols(params: list[Any], stmts: list[Any]) -> None:
    """Every symbol must come from a parameter: itself one, or in the shape or strides of a tensor."""
    known = list(params)
    for param in params:
        if is_buffer(param):
            for extent in (*param.ty.shape, *param.ty.strides):
                tvm_ffi.structural_walk(extent, (ir.Var, known.append), order="pre")
    for stmt in stmts:
        for symbol in tirx.analysis.undefined_vars(stmt, []):
            if not any(symbol.same_as(k) for k in known):
                kind = errors.OutOfScope if is_buffer(symbol) else errors.UnboundSymbol
                raise kind(name=symbol.name, span=_use_of(symbol, stmt))


def _use_of(symbol: ir.Var, stmt: tirx.Stmt) -> Any:
    """The span of the innermost statement that uses a symbol."""
    spans = [stmt.span]

    def visit(inner: Any) -> None:
        if any(symbol.same_as(v) for v in tirx.analysis.undefined_vars(inner, [])):
            spans.append(inner.span)

    tvm_ffi.structural_walk(stmt, (tirx.Stmt, visit), order="pre")
    return spans[-1]


def caller_locals(depth: int) -> Mapping[str, Any]:
    """Locals of the calling function, for annotations kept as text."""
    return sys._getframe(depth + 1).f_locals
