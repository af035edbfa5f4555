# SPDX-License-Identifier: Apache-2.0
"""Tensors of tests, under the path that programs import them from."""

from __future__ import annotations

from typing import Any

from tilelang.profiler import TensorSupplyType
from tilelang.testing import torch_assert_close
from tilelang.tir_builder.dtypes import as_dtype

__all__ = ["TensorSupplyType", "map_torch_type", "torch_assert_close"]


def map_torch_type(dtype: Any) -> Any:
    """The type of torch of an element type."""
    return as_dtype(dtype).as_torch()
