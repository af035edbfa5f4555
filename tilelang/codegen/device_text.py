# SPDX-License-Identifier: Apache-2.0
"""Hands the device-op table to TVM's CUDA printer: one entry an op in its code generation registry."""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm.backend.cuda.codegen.registry import CODEGEN_REGISTRY
from tvm.backend.cuda.op import cuda_func_call

from tilelang.ir.device_ops import DEVICE_OPS, DeviceOpRow

__all__ = ["register_device_text"]


def _print_call(row: DeviceOpRow, args: Any) -> tuple[Any, list[str]]:
    """The helper call for one device op; the helper's text is placed once per kernel text."""
    args = list(args)
    count = len(row.statics)
    statics = {s.name: s.type(a.value) for s, a in zip(row.statics, args[:count], strict=True)}
    form = row.forms(**statics)
    call = cuda_func_call(
        row.helper_name(statics), *args[count:], source_code=row.helper_text(statics), return_type=form.result
    )
    return call, []


def register_device_text() -> None:
    """Idempotent."""
    for row in DEVICE_OPS.values():
        CODEGEN_REGISTRY.setdefault(row.op_name, partial(_print_call, row))
