# SPDX-License-Identifier: Apache-2.0
"""Tensors of tests, under the path that programs import them from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.profiler import TensorSupplyType, make_tensor
from tilelang.runtime.signature import KernelParam
from tilelang.testing import torch_assert_close
from tilelang.tir_builder.dtypes import as_dtype

__all__ = ["TensorSupplyType", "get_tensor_supply", "map_torch_type", "torch_assert_close"]


def map_torch_type(dtype: Any) -> Any:
    """The type of torch of an element type."""
    return as_dtype(dtype).as_torch()


def get_tensor_supply(
    supply_type: TensorSupplyType = TensorSupplyType.Auto, device: Any = None
) -> Callable[[KernelParam], Any]:
    """A function from a kernel's parameter (`kernel.params`) to a tensor for it, on the present CUDA device, or the CPU
    where there is none. It raises `ValueError` for shapes that only a call decides."""
    from tilelang.runtime.device import device_count

    where = device if device is not None else "cuda" if device_count() else "cpu"

    def supply(param: KernelParam) -> Any:
        if not all(isinstance(extent, int) for extent in param.shape):
            raise ValueError(f"the shape {list(param.shape)} has symbols: only a call decides it")
        return make_tensor([int(extent) for extent in param.shape], param.dtype, supply_type, where)

    return supply
