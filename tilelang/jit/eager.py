# SPDX-License-Identifier: Apache-2.0
"""The eager style: the decorated function is the kernel; tensors are bound, and their sizes read, at each call.

A call splits its arguments into runtime ones (tensors, typed scalars) and compile-time ones, takes the `T.const`
sizes off the tensors, and runs the kernel of that specialisation, which is traced and compiled when it is first
needed.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir

from tilelang.jit.freeze import freeze
from tilelang.jit.kernel import JITKernel
from tilelang.jit.target import resolve_target
from tilelang.runtime import dtypes
from tilelang.runtime.ndarray import as_array, as_tensor, has_arrays
from tilelang.tir_builder.eager import EagerShapes, bind_constants, learn_shapes, runtime_parameters, trace_eager
from tilelang.tir_builder.errors import ConstUnknown
from tilelang.tir_builder.source import source_of
from tilelang.tir_builder.specs import TensorSpec

__all__ = ["EagerFunction", "is_eager"]

_LAUNCHERS = frozenset({"Kernel", "ClusterKernel", "CUDASourceCodeKernel", "const"})


def is_eager(func: Callable[..., Any]) -> bool:
    """Whether the function is itself a kernel: it declares tensors or launches, and holds no `T.prim_func`."""
    try:
        tree = source_of(func).node
    except (OSError, TypeError, SyntaxError):
        return False
    if any(isinstance(node, ast.Attribute) and node.attr in _LAUNCHERS for node in ast.walk(tree)):
        return True
    return bool(runtime_parameters(func))


@dataclass(frozen=True)
class _Learnt:
    """What one set of compile-time arguments says about the tensors."""

    shapes: EagerShapes
    places: tuple[tuple[str, str, int], ...]  # where the constants stand: parameter, shape or strides, dimension

    @staticmethod
    def of(shapes: EagerShapes) -> _Learnt:
        places = []
        for name, spec in shapes.parameters.items():
            if not isinstance(spec, TensorSpec):
                continue
            for kind, dims in (("shape", spec.shape), ("strides", spec.strides or ())):
                for dim, symbol in enumerate(dims):
                    if any(isinstance(symbol, ir.Var) and symbol.same_as(v) for v in shapes.constants.values()):
                        places.append((name, kind, dim))
        return _Learnt(shapes, tuple(places))


class EagerFunction:
    """An eager function and its kernels, by specialisation."""

    def __init__(self, func: Callable[..., Any], options: Any) -> None:
        self.func = func
        self.options = options
        self.signature = inspect.signature(func)
        self.runtime = runtime_parameters(func)
        self._is_runtime = frozenset(self.runtime)
        parameters = self.signature.parameters.values()
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        # The usual signature and call, positions only, needs no help of `inspect`.
        self._positional = tuple(self.signature.parameters) if plain else ()
        self._learnt: dict[Any, _Learnt] = {}
        self._kernels: dict[Any, JITKernel] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the kernel on these arguments; returns its outputs, None where it has none."""
        values, constants = self._bind(args, kwargs)
        missing = [n for n in self.runtime if n not in values]
        if missing:
            raise TypeError(f"{self.func.__name__}() lacks the argument '{missing[0]}'")
        given = [values[n] for n in self.runtime]
        if has_arrays(given):
            return self._call_on_arrays(values, constants)
        return self._run(values, constants)

    def _run(self, values: Mapping[str, Any], constants: Mapping[str, int]) -> Any:
        try:
            kernel = self._kernel(values, constants)
        except ConstUnknown:
            self._require_tensors(values)
            raise
        result = kernel(*[values[n] for n in self.runtime])
        return result if kernel.out_idx else None

    def _call_on_arrays(self, values: Mapping[str, Any], constants: Mapping[str, int]) -> Any:
        """A call with numpy arrays; the outputs are arrays where no argument is a torch tensor."""
        name = self.func.__name__
        if resolve_target(self.options.target).kind == "cuda":
            raise TypeError(f"{name}(): a GPU takes no numpy arrays: pass torch.from_numpy(x).cuda()")
        tensors = {
            n: as_tensor(v, f"{name}() argument {self.runtime.index(n)} '{n}'")
            if n in self._is_runtime and has_arrays([v])
            else v
            for n, v in values.items()
        }
        result = self._run(tensors, constants)
        if any(hasattr(values[n], "data_ptr") for n in self.runtime):
            return result
        return [as_array(t) for t in result] if isinstance(result, list | tuple) else as_array(result)

    def _require_tensors(self, values: Mapping[str, Any]) -> None:
        """Raises `TypeError` for the first tensor parameter that got something else."""
        learnt = self._learn(self._compile_time(values))
        for index, name in enumerate(self.runtime):
            value = values.get(name)
            if isinstance(learnt.shapes.parameters.get(name), TensorSpec) and not hasattr(value, "shape"):
                given = "None" if value is None else type(value).__name__
                raise TypeError(f"{self.func.__name__}() argument {index} '{name}': required a tensor, given {given}")

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel of a specialisation: tensors may be left out where the constants are given by name."""
        values, constants = self._bind(args, kwargs)
        return self._kernel(values, constants)

    def get_tir(self, *args: Any, **kwargs: Any) -> Any:
        """The tile program of a specialisation."""
        values, constants = self._bind(args, kwargs)
        compile_time = self._compile_time(values)
        return trace_eager(self.func, compile_time, self._constants(self._learn(compile_time), values, constants))

    def constants(self, compile_time: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the T.const that the shapes of the tensors give a call, for these other arguments."""
        values, _ = self._bind((), compile_time)
        return tuple(self._learn(self._compile_time(values)).shapes.constants)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
        """Arguments by parameter name, defaults included, and keywords that are no parameters: values of constants."""
        if not kwargs and len(args) <= len(self._positional):
            values = dict(self._defaults)
            values.update(zip(self._positional, args))
            return values, {}
        parameters = self.signature.parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        constants = {} if open_ended else {k: v for k, v in kwargs.items() if k not in parameters}
        bound = self.signature.bind_partial(*args, **{k: v for k, v in kwargs.items() if k not in constants})
        bound.apply_defaults()
        return dict(bound.arguments), constants

    def _compile_time(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in values.items() if k not in self._is_runtime}

    def _learn(self, compile_time: Mapping[str, Any]) -> _Learnt:
        key = freeze(compile_time)
        learnt = self._learnt.get(key)
        if learnt is None:
            learnt = self._learnt[key] = _Learnt.of(learn_shapes(self.func, compile_time))
        return learnt

    def _constants(self, learnt: _Learnt, values: Mapping[str, Any], given: Mapping[str, int]) -> dict[str, int]:
        unknown = [n for n in given if n not in learnt.shapes.constants]
        if unknown:
            raise TypeError(
                f"{self.func.__name__}() has no parameter and no constant '{unknown[0]}'; "
                f"constants are {', '.join(learnt.shapes.constants) or 'absent'}"
            )
        tensors = {}
        for name, spec in learnt.shapes.parameters.items():
            tensor = values.get(name)
            if isinstance(spec, TensorSpec) and tensor is not None and hasattr(tensor, "shape"):
                tensors[name] = (_logical_shape(spec, tensor), tuple(tensor.stride()))
        return bind_constants(learnt.shapes, tensors, given)

    def _kernel(self, values: Mapping[str, Any], given: Mapping[str, int]) -> JITKernel:
        compile_time = self._compile_time(values)
        frozen = freeze(compile_time)
        learnt = self._learnt.get(frozen) or self._learn(compile_time)
        sizes = [_size(values.get(name), kind, dim) for name, kind, dim in learnt.places]
        # The target is part of the key since it may come from the environment.
        target = str(resolve_target(self.options.target))
        key = (frozen, tuple(sizes), tuple(sorted(given.items())) if given else (), target)
        kernel = self._kernels.get(key)
        if kernel is None:
            constants = self._constants(learnt, values, given)
            kernel = self._kernels[key] = self.options.compile(trace_eager(self.func, compile_time, constants))
        return kernel


def _size(tensor: Any, kind: str, dim: int) -> int | None:
    """A dimension or stride of a tensor; None where there is none, which the full check reports."""
    if not hasattr(tensor, "shape") or dim >= len(tensor.shape):
        return None
    return tensor.shape[dim] if kind == "shape" else tensor.stride(dim)


def _logical_shape(spec: TensorSpec, tensor: Any) -> tuple[int, ...]:
    """The shape in elements: types narrower than a byte are carried packed along the last dimension."""
    shape = tuple(int(d) for d in tensor.shape)
    packing = dtypes.packing_of(str(spec.dtype))
    return (*shape[:-1], shape[-1] * packing) if shape and packing > 1 else shape
