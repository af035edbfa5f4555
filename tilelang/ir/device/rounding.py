# SPDX-License-Identifier: Apache-2.0
"""Rows on arithmetic that rounds as the program says: IEEE 754 operations in one of four directions.

All are pure and per thread, keep subnormals, and are never contracted or approximated.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.ir.device.row import DeviceOpRow, Form, Static, asm, value

__all__ = ["ROUNDINGS", "ROWS"]

# What the language calls a direction -> PTX ISA, "rounding modifiers": nearest even, to zero, down, up.
ROUNDINGS = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}
_SUFFIX = {"float32": "f32", "float64": "f64"}
_STATICS = (Static("rounding", str, "rn", tuple(ROUNDINGS)), Static("dtype", str, "float32", tuple(_SUFFIX)))


def _rounded(op: str, params: str) -> Callable[..., Form]:
    def build(rounding: str, dtype: str) -> Form:
        operands = tuple(value(p, dtype) for p in params.split())
        text = f"{op}.{ROUNDINGS[rounding]}.{_SUFFIX[dtype]} $result, {', '.join(f'${p}' for p in params.split())};"
        return Form(operands, asm(text, operands, dtype, pure=True), dtype)

    return build


_OPS = (
    ("ieee_add", "add", "a b", "a + b"),
    ("ieee_sub", "sub", "a b", "a - b"),
    ("ieee_mul", "mul", "a b", "a * b"),
    ("ieee_div", "div", "a b", "a / b"),
    ("ieee_fma", "fma", "a b c", "a * b + c, rounded once"),
    ("ieee_rcp", "rcp", "a", "1 / a"),
    ("ieee_sqrt", "sqrt", "a", "square root of a"),
)

ROWS = (
    *(
        DeviceOpRow(name, _rounded(ptx, params), _STATICS, doc=f"{doc}, rounded in the direction `rounding`")
        for name, ptx, params, doc in _OPS
    ),
    DeviceOpRow(
        "ieee_rsqrt",
        Form((value("a", "float32"),), "return __frsqrt_rn(a);", "float32"),
        doc="1 / square root of a, rounded to the nearest",
    ),
)
