# SPDX-License-Identifier: Apache-2.0
"""Measure and check kernels."""

from __future__ import annotations

from tilelang.profiler.bench import do_bench
from tilelang.profiler.profiler import Profiler, assert_close
from tilelang.profiler.supply import TensorSupplyType, make_inputs, make_tensor

__all__ = ["Profiler", "TensorSupplyType", "assert_close", "do_bench", "make_inputs", "make_tensor"]
