# SPDX-License-Identifier: Apache-2.0
"""The eager style: the function is the kernel, its tensors are declared in the signature or in the body.

Tracing happens twice. `learn_shapes` runs the function up to its first launch with a placeholder for each `T.const`
and says what the runtime parameters look like; `bind_constants` reads the constants off the shapes of actual tensors;
`trace_eager` runs all of it with their values and gives the PrimFunc. Symbols of `T.dynamic` stay symbols throughout.

Runtime parameters are those annotated with a tensor, an element type or `T.ptr`, in the signature or by a bare
annotation in the body (`A: T.Tensor((M, K), dtype)`); all others are compile-time values.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx

from tilelang.support.diagnostics import SourceSpan
from tilelang.tir_builder import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.compiled import compiled
from tilelang.tir_builder.dtypes import DType
from tilelang.tir_builder.prim_func import (
    evaluate_annotations,
    finish,
    make_param,
    parameter_span,
    raise_located,
    run_traced,
)
from tilelang.tir_builder.source import Place, source_of
from tilelang.tir_builder.specs import TensorSpec
from tilelang.tir_builder.tracer import Tracer
from tilelang.tir_builder.values import python_value

__all__ = ["Constants", "EagerShapes", "bind_constants", "learn_shapes", "runtime_parameters", "trace_eager"]


@dataclass
class Constants:
    """The `T.const` names of one trace: their values, or placeholders while the shapes are being learnt."""

    values: Mapping[str, int] | None  # None while learning
    placeholders: dict[str, ir.Var] = field(default_factory=dict)
    places: dict[str, SourceSpan] = field(default_factory=dict)

    def get(self, name: str, place: Place | None) -> Any:
        """The value of a constant, or its placeholder. Raises ConstUnknown."""
        if place is not None:
            self.places[name] = place.span
        if self.values is None:
            return self.placeholders.setdefault(name, tirx.Var(name, "int32"))
        if name not in self.values:
            raise errors.ConstUnknown(name=name)
        return self.values[name]


class FirstLaunch(Exception):
    """Raised at the first launch while the shapes are being learnt."""


@dataclass(frozen=True)
class EagerShapes:
    """What the first run learnt: the runtime parameters in order, and the constants asked for."""

    parameters: Mapping[str, TensorSpec | DType]
    constants: Mapping[str, ir.Var]
    places: Mapping[str, SourceSpan]  # where each constant is asked for


def runtime_parameters(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters that are given at each call, in the order of the signature."""
    annotations = evaluate_annotations(fn)
    in_body = {
        node.target.id
        for node in ast.walk(source_of(fn).node)
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name)
    }
    names = inspect.signature(fn).parameters
    return tuple(n for n in names if n in in_body or isinstance(annotations.get(n), TensorSpec | DType))


class EagerTracer(Tracer):
    """A tracer for which a bare annotation of a parameter declares it."""

    def declares(self, annotation: Callable[[], Any]) -> bool:
        try:
            return isinstance(annotation(), TensorSpec | DType)
        except NameError:
            return False

    def declare(self, name: str, annotation: Any) -> Any:
        state = self.builder.eager
        if name not in state.runtime:
            raise errors.NotAParameter(name=name)
        state.specs[name] = annotation
        value = make_param(self.builder, name, annotation)
        state.params[name] = self.builder.params[-1]
        return value


@dataclass
class EagerState:
    """What an eager trace collects; `Builder.eager` while one is under way."""

    constants: Constants
    runtime: frozenset[str]
    specs: dict[str, Any] = field(default_factory=dict)
    params: dict[str, ir.Var] = field(default_factory=dict)

    @property
    def learning(self) -> bool:
        return self.constants.values is None

    def at_launch(self) -> None:
        """A launch begins: while learning, there is nothing more to learn."""
        if self.learning:
            raise FirstLaunch()


def _run(
    fn: Callable[..., Any], compile_time: Mapping[str, Any], constants: Constants
) -> tuple[Builder, EagerState, Any, Place | None]:
    builder = Builder(fn.__name__)
    runtime = runtime_parameters(fn)
    state = builder.eager = EagerState(constants, frozenset(runtime))
    try:
        _, source = compiled(fn)
        annotations = evaluate_annotations(fn)
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        with builder:
            for name, parameter in inspect.signature(fn).parameters.items():
                builder.place = Place(parameter_span(source, name))
                value = _argument(builder, state, parameter, annotations.get(name), compile_time)
                if parameter.kind is parameter.VAR_POSITIONAL:
                    positional += value
                elif parameter.kind is parameter.VAR_KEYWORD:
                    keywords.update(value)
                elif parameter.kind is parameter.KEYWORD_ONLY:
                    keywords[name] = value
                else:
                    positional.append(value)
            place = None
            try:
                result, tracer = run_traced(fn, builder, positional, keywords, EagerTracer)
                place = tracer.return_place
            except FirstLaunch:
                result = None
        return builder, state, result, place
    except Exception as e:  # located, then raised again: nothing is swallowed
        raise_located(e, builder)
        raise


def _argument(
    builder: Builder, state: EagerState, parameter: Any, annotation: Any, compile_time: Mapping[str, Any]
) -> Any:
    name = parameter.name
    if isinstance(annotation, TensorSpec | DType):
        state.specs[name] = annotation
        value = make_param(builder, name, annotation)
        state.params[name] = builder.params[-1]
        return value
    if name in state.runtime:
        return _Undeclared(name)
    if name in compile_time:
        return compile_time[name]
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ()
    if parameter.kind is parameter.VAR_KEYWORD:
        return {}
    if parameter.default is parameter.empty:
        raise errors.CompileTimeMissing(name=name)
    return parameter.default


@dataclass(frozen=True)
class _Undeclared:
    """Stands for a tensor parameter until its annotation in the body is reached."""

    name: str


def learn_shapes(fn: Callable[..., Any], compile_time: Mapping[str, Any]) -> EagerShapes:
    """Run `fn` up to its first launch. Raises catalogue errors at the user's token."""
    constants = Constants(None)
    _, state, _, _ = _run(fn, compile_time, constants)
    order = runtime_parameters(fn)
    return EagerShapes({n: state.specs[n] for n in order if n in state.specs}, constants.placeholders, constants.places)


def bind_constants(
    shapes: EagerShapes,
    tensors: Mapping[str, tuple[Sequence[int], Sequence[int]]],
    given: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The value of every constant, from `given` and from the (shape, strides) of the tensors that are known.

    Raises ConstUnknown for one that is no dimension or stride of a tensor by itself, ConstConflict for two values.
    """
    values = {name: int(v) for name, v in (given or {}).items() if name in shapes.constants}
    for parameter, (shape, strides) in tensors.items():
        spec = shapes.parameters[parameter]
        if not isinstance(spec, TensorSpec):
            continue
        for wanted, actual in ((spec.shape, shape), (spec.strides or (), strides)):
            for dim, symbol in enumerate(wanted):
                name = next((n for n, v in shapes.constants.items() if symbol is v or _same(symbol, v)), None)
                if name is None or dim >= len(actual):
                    continue
                found = int(actual[dim])
                if values.setdefault(name, found) != found:
                    raise errors.ConstConflict(
                        name=name,
                        first=values[name],
                        second=found,
                        tensor=parameter,
                        dim=dim,
                        span=shapes.places.get(name),
                    )
    for name in shapes.constants:
        if name not in values:
            raise errors.ConstUnknown(name=name, span=shapes.places.get(name))
    return values


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, ir.Var) and a.same_as(b)


def trace_eager(
    fn: Callable[..., Any], compile_time: Mapping[str, Any], constants: Mapping[str, int] | None = None
) -> tirx.PrimFunc:
    """The PrimFunc of an eager function: its runtime parameters in order, then the returned T.empty tensors.

    Its attribute `tl.num_outputs` counts the latter (absent for none). Raises catalogue errors at the user's token.
    """
    values = {k: python_value(v) for k, v in (constants or {}).items()}
    builder, state, result, place = _run(fn, compile_time, Constants(values))
    params = [state.params[n] for n in runtime_parameters(fn) if n in state.params]
    return finish(builder, params, result, compiled(fn)[1], place)
