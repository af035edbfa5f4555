# SPDX-License-Identifier: Apache-2.0
"""What a kernel takes: its arguments, and where each shape symbol's value comes from.

A signature is plain data (JSON both ways). The Python checks of `arguments.py`, the native launcher and the
allocation of outputs all read it. A dimension is an integer or an expression text over *slots*; slot k is symbol k,
with the one place that defines it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelang.runtime import expression

__all__ = ["KernelParam", "ScalarArg", "Signature", "Slot", "TensorArg"]


@dataclass(frozen=True)
class KernelParam:
    """One parameter as users see it: element type and shape, symbols by name; a scalar has no dimensions."""

    dtype: str
    shape: tuple[int | str, ...]

    def is_scalar(self) -> bool:
        return not self.shape

    def torch_dtype(self) -> Any:
        """The element type as torch calls it; of elements smaller than a byte, that of the bytes that hold them."""
        from tilelang.runtime.dtypes import torch_dtype

        return torch_dtype(self.dtype)

    def is_unsigned(self) -> bool:
        return self.dtype.startswith("uint")

    def is_float8(self) -> bool:
        return self.dtype.startswith("float8")

    def is_boolean(self) -> bool:
        return self.dtype == "bool"

    def get_shape(self) -> list[int | str]:
        return list(self.shape)


@dataclass(frozen=True)
class TensorArg:
    """A tensor: `strides` None means contiguous; `align` is the alignment in bytes that the kernel's accesses
    assume.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    strides: tuple[str, ...] | None = None
    align: int = 1
    optional: bool = False  # the kernel never touches it, so None will do


@dataclass(frozen=True)
class ScalarArg:
    """A number passed by value; type `handle` is a raw address."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Slot:
    """A symbol and its definition: `kind` is shape, stride or scalar; the value at (`arg`, `dim`) equals the
    expression there, which is linear in this slot and otherwise reads earlier slots only.
    """

    name: str
    kind: str
    arg: int
    dim: int = 0
    dtype: str = "int32"  # what device code computes with


@dataclass(frozen=True)
class Signature:
    """Arguments in call order, outputs included."""

    name: str
    args: tuple[TensorArg | ScalarArg, ...]
    slots: tuple[Slot, ...] = ()
    outputs: tuple[int, ...] = field(default=())  # positions allocated by the caller's side and returned
    hidden: int = 0  # the last outputs that are workspaces: allocated, and not returned
    preconditions: tuple[tuple[str, str], ...] = ()  # what must hold (expression text), and what is said if not

    @property
    def inputs(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.args)) if i not in self.outputs)

    def returned(self, made: Sequence[Any]) -> Any:
        """What a call gives back, of all outputs that were made: one, or a list where there are several or none."""
        seen = list(made[: len(self.outputs) - self.hidden])
        return seen[0] if len(seen) == 1 else seen

    @property
    def slot_names(self) -> list[str]:
        return [slot.name for slot in self.slots]

    def params(self) -> list[KernelParam]:
        """Parameters as users see them."""
        return [self._param(arg) for arg in self.args]

    def _param(self, arg: TensorArg | ScalarArg) -> KernelParam:
        if isinstance(arg, ScalarArg):
            return KernelParam(arg.dtype, ())
        shown = tuple(self.show(d) for d in arg.shape)
        return KernelParam(arg.dtype, shown)

    def show(self, dim: str) -> int | str:
        """A dimension for a reader: an integer, or text over symbol names."""
        value = expression.constant_value(dim)
        return value if value is not None else expression.render(dim, self.slot_names)

    def describe(self) -> str:
        """`main(A: Tensor([M, 64], float16), alpha: float32)`."""
        return f"{self.name}({', '.join(self._describe_arg(a) for a in self.args)})"

    def _describe_arg(self, arg: TensorArg | ScalarArg) -> str:
        if isinstance(arg, ScalarArg):
            return f"{arg.name}: {arg.dtype}"
        dims = ", ".join(str(self.show(d)) for d in arg.shape)
        return f"{arg.name}: Tensor([{dims}], {arg.dtype})"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "args": [_arg_json(a) for a in self.args],
            "slots": [vars(s) for s in self.slots],
            "outputs": list(self.outputs),
            "hidden": self.hidden,
            "preconditions": [list(p) for p in self.preconditions],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Signature:
        return Signature(
            data["name"],
            tuple(_arg_from_json(a) for a in data["args"]),
            tuple(Slot(**s) for s in data["slots"]),
            tuple(data["outputs"]),
            data.get("hidden", 0),
            tuple((text, message) for text, message in data.get("preconditions", ())),
        )


def _arg_json(arg: TensorArg | ScalarArg) -> dict[str, Any]:
    if isinstance(arg, ScalarArg):
        return {"kind": "scalar", "name": arg.name, "dtype": arg.dtype}
    return {
        "kind": "tensor",
        "name": arg.name,
        "dtype": arg.dtype,
        "shape": list(arg.shape),
        "strides": None if arg.strides is None else list(arg.strides),
        "align": arg.align,
        "optional": arg.optional,
    }


def _arg_from_json(data: dict[str, Any]) -> TensorArg | ScalarArg:
    if data["kind"] == "scalar":
        return ScalarArg(data["name"], data["dtype"])
    strides: Sequence[str] | None = data["strides"]
    return TensorArg(
        data["name"],
        data["dtype"],
        tuple(data["shape"]),
        None if strides is None else tuple(strides),
        data["align"],
        data["optional"],
    )
