# SPDX-License-Identifier: Apache-2.0
"""numpy arrays as arguments of kernels that run in host memory: the same memory as a torch tensor, and back.

Element types that numpy itself does not have (bfloat16, float8) are those of ml_dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.runtime.signature import ScalarArg, Signature, TensorArg

__all__ = ["as_array", "as_tensor", "has_arrays", "has_numpy", "with_numpy"]


def has_arrays(values: Sequence[Any]) -> bool:
    """Is one of the values a numpy array."""
    return any(isinstance(v, np.ndarray) for v in values)


def has_numpy(values: Sequence[Any]) -> bool:
    """Is one of the values a numpy array or scalar."""
    return any(isinstance(v, np.ndarray | np.generic) for v in values)


def with_numpy(run: Any, signature: Signature, inputs: Sequence[Any]) -> Any:
    """Calls `run` on inputs some of which are numpy's; its outputs are arrays where arrays came and no tensor."""
    positions = [*signature.inputs, *[-1] * len(inputs)]
    result = run(*(_plain(value, signature, position) for value, position in zip(inputs, positions)))
    if not has_arrays(inputs) or any(hasattr(v, "data_ptr") for v in inputs):
        return result
    return [as_array(t) for t in result] if isinstance(result, list | tuple) else as_array(result)


def _plain(value: Any, signature: Signature, position: int) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    spec = signature.args[position] if position >= 0 else None
    if isinstance(value, np.ndarray) and isinstance(spec, ScalarArg) and value.ndim == 0:
        return value.item()
    if not isinstance(value, np.ndarray) or not isinstance(spec, TensorArg):
        return value
    return as_tensor(value, f"{signature.name}() argument {position} '{spec.name}'")


def as_tensor(array: np.ndarray, place: str) -> Any:
    """A torch tensor over the memory of an array. `place` begins the text of errors.

    Raises `TypeError` for element types that torch does not have, `ValueError` for arrays that cannot be shared.
    """
    import torch

    if not array.flags.writeable:
        raise ValueError(f"{place}: required a writable array, given one that is read-only; pass a copy (.copy())")
    if any(s < 0 for s in array.strides):
        raise ValueError(f"{place}: required strides of 0 or more, given {array.strides}; pass a copy (.copy())")
    if array.dtype.name in ("int4", "uint4", "float4_e2m1fn"):
        raise TypeError(f"{place}: required {array.dtype} packed in bytes of uint8, given an element a byte")
    wanted = getattr(torch, array.dtype.name, None)
    if not isinstance(wanted, torch.dtype) or not array.dtype.isnative:
        raise TypeError(f"{place}: required an array of numbers in native order, given {array.dtype}")
    if array.dtype.kind != "V" and not array.dtype.name.startswith(("bfloat", "float8")):
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(wanted)


def as_array(tensor: Any) -> Any:
    """A numpy array over the memory of a torch tensor; what is no tensor stays as it is."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return tensor
    name = str(tensor.dtype).removeprefix("torch.")
    if name.startswith(("bfloat", "float8")):
        import ml_dtypes

        bits = torch.uint16 if tensor.element_size() == 2 else torch.uint8
        return tensor.view(bits).numpy().view(getattr(ml_dtypes, name))
    return tensor.detach().numpy()
