# SPDX-License-Identifier: Apache-2.0
"""Conversions of floats to integers, also of what no integer holds: with the results of the device.

They truncate and saturate. float32 and float64 reach 8 and 16 bits through 32, so that these wrap; narrower floats are
converted at once. NaN becomes 0, to and from 64 bits the highest bit alone (PTX ISA, "cvt"; the simulator does the
same, `tilelang.sim.values`). LLVM's own conversions leave all of this open.

Requires: narrow floats are still typed as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilelang.ir import walk
from tilelang.ir.stmts import dtype_of

__all__ = ["call_conversions", "conversion_texts"]

# float type -> the LLVM type in which its values are passed
_FLOATS = {
    "float64": "double",
    "float32": "float",
    "float16": "half",
    "bfloat16": "float",
    "float8_e4m3fn": "float",
    "float8_e4m3": "float",
    "float8_e5m2": "float",
    "float8_e8m0fnu": "float",
}
_INTEGERS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


def call_conversions(body: Any) -> Any:
    """The statement with conversions of floats to integers as calls."""

    def call(cast: Any) -> Any:
        source, dtype = dtype_of(cast.value), dtype_of(cast)
        if source not in _FLOATS or dtype not in _INTEGERS:
            return cast
        return tirx.call_pure_extern(dtype, _name(source, dtype), cast.value)

    return walk.rewrite(body, {tirx.Cast: call})


def _name(source: str, dtype: str) -> str:
    return f"tl_{source}_to_{dtype}"


def conversion_texts() -> dict[str, tuple[Callable[[], str], tuple[str, ...]]]:
    """Definitions by name, in LLVM's language, with the names of the declarations that they need."""
    table: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {}
    for wide in ("float", "double"):
        for through in (8, 16, 32, 64):
            for sign in "su":
                intrinsic, text = _intrinsic(sign, through, wide), f"i{through} @{{}}({wide})"
                table[intrinsic] = (lambda text=text, name=intrinsic: f"declare {text.format(name)}", ())
    for source in _FLOATS:
        for dtype in _INTEGERS:
            sign, through, wide = _way(source, dtype)
            needs = (_intrinsic(sign, through, wide),)
            table[_name(source, dtype)] = (lambda f=source, i=dtype: _text(f, i), needs)
    return table


def _way(source: str, dtype: str) -> tuple[str, int, str]:
    """How a conversion is done: with which sign, through how many bits, from which LLVM type."""
    through = 32 if _INTEGERS[dtype] < 32 and source in ("float32", "float64") else _INTEGERS[dtype]
    return "u" if dtype.startswith("u") else "s", through, "double" if source == "float64" else "float"


def _intrinsic(sign: str, bits: int, wide: str) -> str:
    return f"llvm.fpto{sign}i.sat.i{bits}.f{64 if wide == 'double' else 32}"


def _text(source: str, dtype: str) -> str:
    (sign, through, wide), bits = _way(source, dtype), _INTEGERS[dtype]
    nan = 1 << (through - 1) if through == 64 or wide == "double" else 0
    widen = f"fpext half %given to {wide}" if _FLOATS[source] == "half" else f"fadd {wide} %given, -0.0"
    narrow = f"trunc i{through} %v to i{bits}" if through != bits else f"add i{bits} %v, 0"
    return f"""
define internal i{bits} @{_name(source, dtype)}({_FLOATS[source]} %given) alwaysinline nounwind {{
  %x = {widen}
  %converted = call i{through} @{_intrinsic(sign, through, wide)}({wide} %x)
  %nan = fcmp uno {wide} %x, %x
  %v = select i1 %nan, i{through} {nan}, i{through} %converted
  %r = {narrow}
  ret i{bits} %r
}}"""
