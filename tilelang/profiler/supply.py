# SPDX-License-Identifier: Apache-2.0
"""Input tensors for measuring and checking a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from tilelang.runtime import dtypes
from tilelang.runtime.arguments import ArgumentChecker
from tilelang.runtime.expression import slots_of
from tilelang.runtime.signature import ScalarArg, Signature, TensorArg

if TYPE_CHECKING:
    import torch

__all__ = ["TensorSupplyType", "choose_values", "copied", "make_inputs", "make_tensor"]

DEFAULT_EXTENT = 208  # whole 16-byte rows of every type, and no whole tile: edges are ragged


class TensorSupplyType(Enum):
    """What inputs hold. Auto: uniform in [-1, 1) for floating types, small integers for integer and 8-bit float
    types.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def make_tensor(shape: Sequence[int], dtype: str, supply: TensorSupplyType, device: Any) -> torch.Tensor:
    """A tensor of a kernel's element type `dtype`, filled as `supply` says."""
    import torch

    carrier = dtypes.torch_dtype(dtype)
    size = list(shape)
    if size and dtypes.packing_of(dtype) > 1:
        size[-1] = -(-size[-1] // dtypes.packing_of(dtype))
    if supply is TensorSupplyType.Zero:
        return torch.zeros(size, device=device).to(carrier)
    if supply is TensorSupplyType.One:
        return torch.ones(size, device=device).to(carrier)
    wide = carrier.is_floating_point and dtypes.bits_of(dtype) > 8
    if supply is TensorSupplyType.Auto:
        supply = TensorSupplyType.Uniform if wide else TensorSupplyType.Integer
    if supply is TensorSupplyType.Integer:
        return _integers(size, dtype, device).to(carrier)
    if supply is TensorSupplyType.Uniform:
        return (torch.rand(size, device=device) * 2 - 1).to(carrier)
    return torch.randn(size, device=device).to(carrier)


def _integers(size: list[int], dtype: str, device: Any) -> torch.Tensor:
    import torch

    if dtype == "bool":
        return torch.randint(0, 2, size, device=device)
    low = 0 if dtype.startswith("uint") else -2
    return torch.randint(low, 3, size, device=device)


def make_inputs(
    signature: Signature, supply: TensorSupplyType, device: Any, symbols: Mapping[str, int] | None = None
) -> list[Any]:
    """Inputs of a kernel in call order. Raises `ValueError` where a symbol or scalar has no value in `symbols`, or one
    that makes an extent negative.
    """
    known = dict(symbols or {})
    for slot in signature.slots:
        if slot.name not in known and slot.kind != "scalar":
            raise ValueError(f"{signature.name}: give symbol {slot.name} a value, as {{{slot.name!r}: 1024}}")
    _expect_extents(signature, known)
    checker = ArgumentChecker(signature, str(device))
    values = _slot_values(signature, known)
    inputs: list[Any] = []
    for i in signature.inputs:
        spec = signature.args[i]
        if isinstance(spec, ScalarArg):
            if spec.name not in known:
                raise ValueError(f"{signature.name}: scalar {spec.name} needs a value; pass the inputs yourself")
            inputs.append(known[spec.name])
            continue
        tensor = make_tensor(checker.extents(i, values), spec.dtype, supply, device)
        inputs.append(_with_strides(tensor, checker.steps(i, values)))
    return inputs


def copied(value: Any, device: Any = None) -> Any:
    """A copy of a tensor with its values and strides, on `device` if one is given; other values as they are."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    where = device if device is not None else value.device
    if 0 in value.stride():  # several elements at one address
        return value.detach().to(where, copy=True)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=where).copy_(value.detach())


def choose_values(signature: Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each symbol and scalar of a kernel: the given one, or a plain one.

    Extents become 208 (whole rows of 16 bytes, ragged tiles), other scalars 1, strides 0 (contiguous). Raises
    `ValueError` for names that the kernel does not have, values of another type, negative extents, and addresses that
    nobody gave.
    """
    scalars = {a.name: a.dtype for a in signature.args if isinstance(a, ScalarArg)}
    kinds = {s.name: s.kind for s in signature.slots}
    names = dict.fromkeys([*kinds, *scalars])
    for name, value in given.items():
        if name not in names:
            raise ValueError(
                f"{signature.name} has no symbol and no scalar {name}; it has {', '.join(names) or 'none'}"
            )
        if not _is_of(value, scalars.get(name, "int32")):
            raise ValueError(f"{signature.name}: {name} is of type {scalars.get(name, 'int32')}, got {value!r}")
    extents = {
        signature.slots[k].name
        for a in signature.args
        if isinstance(a, TensorArg)
        for d in a.shape
        for k in slots_of(d)
    }
    values: dict[str, Any] = {n: 0 for n in names if kinds.get(n) == "stride"} | {
        n: DEFAULT_EXTENT for n in names if n in extents
    }
    for name, dtype in scalars.items():
        if dtype == "handle" and name not in given:
            raise ValueError(f"{signature.name}: {name} is an address, which only a caller has")
        values.setdefault(name, 1.0 if "float" in dtype else 1)
    values |= given
    _expect_extents(signature, values)
    return values


def _slot_values(signature: Signature, known: Mapping[str, Any]) -> list[int]:
    return [int(known.get(slot.name, 0)) for slot in signature.slots]


def _expect_extents(signature: Signature, known: Mapping[str, Any]) -> None:
    """Raises `ValueError` for the first extent or stride of a tensor that is negative with these values."""
    checker, values = ArgumentChecker(signature, "cpu"), _slot_values(signature, known)
    for i in signature.inputs:
        spec = signature.args[i]
        if not isinstance(spec, TensorArg):
            continue
        for what, forms, sizes in (
            ("shape", spec.shape, checker.extents(i, values)),
            ("strides", spec.strides or (), checker.steps(i, values) or ()),
        ):
            for d, (form, size) in enumerate(zip(forms, sizes, strict=True)):
                if size < 0:
                    names = dict.fromkeys(signature.slots[k].name for k in slots_of(form))
                    given = ", ".join(f"{n} = {known.get(n, 0)}" for n in names)
                    raise ValueError(
                        f"{signature.name}: {given} makes {spec.name}.{what}[{d}] {size}; extents and strides are >= 0"
                    )


def _is_of(value: Any, dtype: str) -> bool:
    """Is a Python number a value of the type?"""
    if isinstance(value, bool) or dtype == "bool":
        return dtype == "bool" and value in (0, 1)
    return isinstance(value, (int, float) if "float" in dtype else int)


def _with_strides(tensor: Any, steps: list[int] | None) -> Any:
    """The values with the strides that the kernel wants; strides without a value of their own (0) stay contiguous."""
    if steps is None or 0 in steps or tensor.numel() == 0 or list(tensor.stride()) == steps:
        return tensor
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, steps))
    strided = tensor.new_zeros(span).as_strided(tensor.shape, steps)
    strided.copy_(tensor)
    return strided
