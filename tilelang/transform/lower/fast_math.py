# SPDX-License-Identifier: Apache-2.0
"""Chooses the hardware's approximate functions for float32 math.

`exp2` is always one MUFU instruction (`ex2.approx.ftz`: 2 ulp; results below 2^-126 become 0), as softmax kernels
expect; the others stay accurate unless `fast_math` is on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.device_ops import device_op

__all__ = ["lower_math"]

LOG2E = float(np.float32(1.4426950408889634))
LN2 = float(np.float32(0.6931471805599453))


def lower_math(stmt: Any, fast_math: bool) -> Any:
    """The statement with float32 functions replaced by device ops."""

    def call(node: Any) -> Any:
        space, _, name = getattr(node.op, "name", "").rpartition(".")
        if space not in ("tirx", "prim") or len(node.args) != 1 or str(getattr(node.ty, "dtype", "")) != "float32":
            return node
        x = node.args[0]
        if name == "exp2":
            return device_op("ex2", x)
        if not fast_math:
            return node
        if name == "exp":
            return device_op("ex2", x * tirx.const(LOG2E, "float32"))
        if name == "log2":
            return device_op("lg2", x)
        if name == "log":
            return device_op("lg2", x) * tirx.const(LN2, "float32")
        return node

    return tvm_ffi.structural_map(stmt, (ir.Call, call))
