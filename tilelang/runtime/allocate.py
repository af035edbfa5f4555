# SPDX-License-Identifier: Apache-2.0
"""Allocates a kernel's outputs from its inputs: the shapes follow from the symbols, the device from the first
tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.runtime import dtypes
from tilelang.runtime.arguments import ArgumentChecker
from tilelang.runtime.signature import Signature, TensorArg

__all__ = ["OutputAllocator"]


class OutputAllocator:
    """Prepared once a kernel."""

    def __init__(self, signature: Signature, device_type: str) -> None:
        self._signature = signature
        self._device_type = device_type
        self._checker = ArgumentChecker(signature, device_type)
        self._inputs = signature.inputs
        self._outputs = [_Output(signature, self._checker, i) for i in signature.outputs]
        self._static = all(output.shape is not None for output in self._outputs)
        # The usual order: outputs follow the inputs.
        self._last = signature.outputs == tuple(range(len(self._inputs), len(signature.args)))

    def complete(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
        """All arguments in call order, and the new outputs among them."""
        if not self._outputs:
            return inputs, []
        slots = None if self._static else self._slots(inputs)
        device = self._device(inputs)
        made = [output.allocate(slots, device) for output in self._outputs]
        if self._last:
            return [*inputs, *made], made
        args = self._spread(inputs)
        for output, tensor in zip(self._outputs, made):
            args[output.index] = tensor
        return args, made

    def _spread(self, inputs: Sequence[Any]) -> list[Any]:
        args: list[Any] = [None] * len(self._signature.args)
        for position, value in zip(self._inputs, inputs):
            args[position] = value
        return args

    def _slots(self, inputs: Sequence[Any]) -> list[int]:
        args = self._spread(inputs)
        try:
            return self._checker.bind(args)
        except (AttributeError, IndexError, TypeError, ValueError):
            # An input is no tensor or lacks a dimension: the full check says which, and how.
            self._checker.check_inputs(args)
            raise

    def _device(self, inputs: Sequence[Any]) -> Any:
        for value in inputs:
            if hasattr(value, "data_ptr"):
                return value.device
        import torch

        if self._device_type == "cuda":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


class _Output:
    """How one output is allocated; `shape` is None where it depends on symbols."""

    def __init__(self, signature: Signature, checker: ArgumentChecker, index: int) -> None:
        spec = signature.args[index]
        assert isinstance(spec, TensorArg)
        if spec.strides is not None:
            raise ValueError(f"output '{spec.name}' is a StridedTensor; only contiguous tensors are allocated")
        self.index = index
        self._checker = checker
        self._packing = dtypes.packing_of(spec.dtype)
        self._dtype = dtypes.torch_dtype(spec.dtype)
        static = all(d.lstrip("-").isdigit() for d in spec.shape)
        self.shape = self._physical([int(d) for d in spec.shape]) if static else None

    def _physical(self, extents: list[int]) -> list[int]:
        return [*extents[:-1], -(-extents[-1] // self._packing)]

    def allocate(self, slots: Sequence[int] | None, device: Any) -> Any:
        import torch

        shape = self.shape
        if shape is None:
            assert slots is not None
            shape = self._physical(self._checker.extents(self.index, slots))
        return torch.empty(shape, dtype=self._dtype, device=device)
