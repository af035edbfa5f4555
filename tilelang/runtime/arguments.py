# SPDX-License-Identifier: Apache-2.0
"""Checks of call arguments, and the values of shape symbols.

The rules and their wording stand here once for the cpu and sim targets; the native launcher states the same ones
(src/arguments.cc), and a test holds the two together. A message names the argument, what is required and what was
given. Wrong kinds and element types are `TypeError`; ranks, extents, strides, devices and alignment are `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilelang.runtime import dtypes, expression
from tilelang.runtime.signature import ScalarArg, Signature, TensorArg

_FLOAT64_BITS = 1023  # integers of more bits may be too large for a float64

__all__ = ["ArgumentChecker", "count_error"]


def count_error(signature: Signature, given: int) -> ValueError:
    """The error for a wrong number of inputs."""
    names = ", ".join(signature.args[i].name for i in signature.inputs)
    return ValueError(
        f"{signature.describe()} takes {len(signature.inputs)} inputs ({names}), given {given}"
        + (
            f"; outputs {[signature.args[i].name for i in signature.outputs]} are allocated"
            if signature.outputs
            else ""
        )
    )


@dataclass(frozen=True)
class _Place:
    """One argument, for messages."""

    signature: Signature
    index: int

    def text(self, what: str) -> str:
        return f"{self.signature.name}() argument {self.index} '{self.signature.args[self.index].name}': {what}"

    def type_error(self, what: str) -> TypeError:
        return TypeError(self.text(what))

    def value_error(self, what: str) -> ValueError:
        return ValueError(self.text(what))


class ArgumentChecker:
    """Checks one signature's arguments and reads the slots; prepared once a kernel, used every call."""

    def __init__(self, signature: Signature, device_type: str) -> None:
        self.signature = signature
        self.device_type = device_type
        self._compiled: dict[str, Callable[[Sequence[int]], int]] = {}
        for arg in signature.args:
            if isinstance(arg, TensorArg):
                for text in (*arg.shape, *(arg.strides or ())):
                    self._compiled.setdefault(text, expression.compile_expression(text))
        self._preconditions = [(expression.compile_expression(text), said) for text, said in signature.preconditions]

    def check(self, args: Sequence[Any]) -> list[int]:
        """Raises for the first argument that does not fit; returns the slot values."""
        sig = self.signature
        if len(args) != len(sig.args):
            raise ValueError(f"{sig.describe()} takes {len(sig.args)} arguments, given {len(args)}")
        self._check_kinds(args, range(len(args)))
        slots = self.bind(args)
        for i, (spec, arg) in enumerate(zip(sig.args, args)):
            if isinstance(spec, TensorArg) and arg is not None:
                self._check_extents(_Place(sig, i), spec, arg, slots)
        self.check_preconditions(slots)
        return slots

    def check_preconditions(self, slots: Sequence[int]) -> None:
        """Raises `RuntimeError` for the first assertion of the program's host part that does not hold."""
        for holds, said in self._preconditions:
            if not holds(slots):
                raise RuntimeError(f"{self.signature.name}(): {said}")

    def passed(self, args: Sequence[Any]) -> list[Any]:
        """The arguments as kernels of the host take them: addresses for raw pointers, bytes for narrower elements, the
        kernel's own type where another one of its size stands for it."""
        return [_passed(spec, arg) for spec, arg in zip(self.signature.args, args)]

    def check_inputs(self, args: Sequence[Any]) -> None:
        """Raises for the first input of a wrong kind, type, rank or device; outputs may be missing."""
        self._check_kinds(args, self.signature.inputs)

    def _check_kinds(self, args: Sequence[Any], positions: Sequence[int]) -> None:
        device: tuple[Any, str] | None = None
        for i in positions:
            spec, arg, place = self.signature.args[i], args[i], _Place(self.signature, i)
            if isinstance(spec, ScalarArg):
                _check_scalar(place, spec, arg)
            elif arg is not None:
                device = self._check_tensor(place, spec, arg, device)
            elif not spec.optional:
                raise place.type_error("required a tensor, given None")

    def bind(self, args: Sequence[Any]) -> list[int]:
        """Slot values; `args` may hold None for outputs. A slot whose place holds None raises `ValueError`."""
        slots: list[int] = []
        for slot in self.signature.slots:
            arg = args[slot.arg]
            spec = self.signature.args[slot.arg]
            if arg is None:
                raise ValueError(
                    f"{self.signature.name}(): symbol {slot.name} is defined by argument '{spec.name}', which is None"
                )
            if isinstance(spec, ScalarArg):
                slots.append(int(arg))
                continue
            text, given = self._slot_place(spec, slot.kind, slot.dim, arg)
            value = self._solve(text, given, slots)
            if slot.dtype == "int32" and not -(2**31) <= value < 2**31:
                raise ValueError(
                    f"{self.signature.name}() argument {slot.arg} '{spec.name}': {slot.name} = {value} does not fit "
                    f'int32; declare the symbol T.dynamic("{slot.name}", "int64")'
                )
            slots.append(value)
        return slots

    def _slot_place(self, spec: TensorArg, kind: str, dim: int, arg: Any) -> tuple[str, int]:
        if kind == "stride":
            assert spec.strides is not None
            return spec.strides[dim], int(arg.stride(dim))
        extent = int(arg.shape[dim])
        return spec.shape[dim], extent * dtypes.packing_of(spec.dtype) if dim == len(spec.shape) - 1 else extent

    def _solve(self, text: str, value: int, slots: list[int]) -> int:
        if text == f"s{len(slots)}":
            return value
        at = self._compiled[text]
        base = at([*slots, 0])
        slope = at([*slots, 1]) - base
        return (value - base) // slope if slope else 0

    def extents(self, index: int, slots: Sequence[int]) -> list[int]:
        """Logical shape of tensor argument `index`."""
        spec = self.signature.args[index]
        assert isinstance(spec, TensorArg)
        return [self._compiled[d](slots) for d in spec.shape]

    def steps(self, index: int, slots: Sequence[int]) -> list[int] | None:
        """Strides of tensor argument `index`, in elements; None where it is contiguous."""
        spec = self.signature.args[index]
        assert isinstance(spec, TensorArg)
        return None if spec.strides is None else [self._compiled[s](slots) for s in spec.strides]

    def _check_tensor(
        self, place: _Place, spec: TensorArg, arg: Any, device: tuple[Any, str] | None
    ) -> tuple[Any, str]:
        shape = getattr(arg, "shape", None)
        if shape is None or not hasattr(arg, "data_ptr"):
            raise place.type_error(f"required a tensor of {spec.dtype}, given {type(arg).__name__}")
        given = str(arg.dtype).removeprefix("torch.")
        if given not in dtypes.carriers_of(spec.dtype):
            raise place.type_error(f"required dtype {spec.dtype}, given {given}")
        if len(shape) != len(spec.shape):
            raise place.value_error(f"required rank {len(spec.shape)}, given {len(shape)}, shape {list(shape)}")
        if arg.device.type != self.device_type:
            raise place.value_error(f"required a tensor on {self.device_type}, given one on {arg.device}")
        if device is not None and arg.device != device[0]:
            raise place.value_error(f"required device {device[0]} as argument '{device[1]}', given {arg.device}")
        return device or (arg.device, spec.name)

    def _check_extents(self, place: _Place, spec: TensorArg, arg: Any, slots: Sequence[int]) -> None:
        sig = self.signature
        packing = dtypes.packing_of(spec.dtype)
        last = len(spec.shape) - 1
        for dim, text in enumerate(spec.shape):
            required = self._compiled[text](slots)
            given = int(arg.shape[dim]) * (packing if dim == last else 1)
            if given != required:
                raise place.value_error(f"required shape[{dim}] == {_shown(sig, text, required)}, given {given}")
        self._check_strides(place, spec, arg, slots)
        if spec.align > 1 and arg.numel() and arg.data_ptr() % spec.align:
            raise place.value_error(
                f"required data aligned to {spec.align} bytes, given {arg.data_ptr():#x}; pass a copy (.clone())"
            )

    def _check_strides(self, place: _Place, spec: TensorArg, arg: Any, slots: Sequence[int]) -> None:
        if arg.numel() == 0:
            return
        running = 1
        for dim in reversed(range(len(spec.shape))):
            extent, given = int(arg.shape[dim]), int(arg.stride(dim))
            if spec.strides is None:
                required, hint = running, "contiguous; pass .contiguous() or declare it T.StridedTensor"
                shown = f"{required} ({hint})"
            else:
                required = self._compiled[spec.strides[dim]](slots)
                shown = _shown(self.signature, spec.strides[dim], required)
            if extent != 1 and given != required:
                raise place.value_error(f"required stride[{dim}] == {shown}, given {given}")
            running *= extent


def _shown(signature: Signature, text: str, value: int) -> str:
    """`4`, or `n = 200 (n from argument 0 'A')`."""
    if expression.constant_value(text) is not None:
        return str(value)
    sources = []
    for number in sorted(expression.slots_of(text)):
        slot = signature.slots[number]
        sources.append(f"{slot.name} from argument {slot.arg} '{signature.args[slot.arg].name}'")
    return f"{expression.render(text, signature.slot_names)} = {value} ({', '.join(sources)})"


def _passed(spec: ScalarArg | TensorArg, arg: Any) -> Any:
    if isinstance(spec, ScalarArg):
        return arg.data_ptr() if spec.dtype == "handle" and hasattr(arg, "data_ptr") else arg
    if arg is None:
        return arg
    own = dtypes.carriers_of(spec.dtype)[0] if dtypes.packing_of(spec.dtype) == 1 else "uint8"
    if str(arg.dtype).removeprefix("torch.") == own:
        return arg
    return arg.view(dtypes.torch_dtype(own)) if hasattr(arg, "data_ptr") else arg.view(own)


def _check_scalar(place: _Place, spec: ScalarArg, arg: Any) -> None:
    if type(arg).__module__ == "numpy" and getattr(arg, "ndim", 1) == 0:
        arg = arg.item()  # a scalar of numpy
    if spec.dtype.startswith(("float", "bfloat")):
        fits = isinstance(arg, (int, float)) and not isinstance(arg, bool)
    elif spec.dtype == "bool":
        fits = isinstance(arg, (bool, int))
    elif spec.dtype == "handle":
        fits = isinstance(arg, int) or hasattr(arg, "data_ptr")
    else:
        fits = isinstance(arg, int)
    if not fits:
        raise place.type_error(f"required a number of type {spec.dtype}, given {type(arg).__name__}")
    if isinstance(arg, int) and spec.dtype.startswith(("int", "uint")):
        low, high = _integer_range(spec.dtype)
        if not low <= arg <= high:
            raise place.value_error(f"required a value of {spec.dtype}, given {arg}")
    if isinstance(arg, int) and "float" in spec.dtype and arg.bit_length() > _FLOAT64_BITS:
        raise place.value_error(f"required a value of {spec.dtype}, given an integer of {arg.bit_length()} bits")


def _integer_range(dtype: str) -> tuple[int, int]:
    bits = dtypes.bits_of(dtype)
    return (0, 2**bits - 1) if dtype.startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
