# SPDX-License-Identifier: Apache-2.0
"""Floor division by a divisor that is known at run time only, as a function of its own.

TVM's lowering of such a division binds temporaries inside the expression; where a bound value is copied into several
uses, the copies bind the same names to different values, which its LLVM code generator refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilelang.ir import walk
from tilelang.ir.stmts import const_int, dtype_of

__all__ = ["call_floor_divisions", "floor_texts"]

_BITS = {"int32": 32, "int64": 64}


def call_floor_divisions(body: Any) -> Any:
    """The statement with divisions and remainders by run-time values as calls."""

    def rule(name: str) -> Callable[[Any], Any]:
        def call(node: Any) -> Any:
            dtype = dtype_of(node)
            if dtype not in _BITS or const_int(node.b) is not None:
                return node
            return tirx.call_pure_extern(dtype, f"tl_{name}_{dtype}", node.a, node.b)

        return call

    return walk.rewrite(body, {tirx.FloorDiv: rule("floordiv"), tirx.FloorMod: rule("floormod")})


def floor_texts() -> dict[str, Callable[[], str]]:
    """Definitions by name, in LLVM's language."""
    table: dict[str, Callable[[], str]] = {}
    for dtype, bits in _BITS.items():
        table[f"tl_floordiv_{dtype}"] = lambda d=dtype, n=bits: _text(f"tl_floordiv_{d}", n, "%q", "%carry")
        table[f"tl_floormod_{dtype}"] = lambda d=dtype, n=bits: _text(f"tl_floormod_{d}", n, "%r", "%back")
    return table


def _text(name: str, bits: int, value: str, correction: str) -> str:
    """Towards zero, corrected where the remainder and the divisor have different signs."""
    t = f"i{bits}"
    return f"""
define internal {t} @{name}({t} %a, {t} %b) alwaysinline nounwind {{
  %q = sdiv {t} %a, %b
  %r = srem {t} %a, %b
  %some = icmp ne {t} %r, 0
  %signs = xor {t} %r, %b
  %differ = icmp slt {t} %signs, 0
  %wrong = and i1 %some, %differ
  %carry = sext i1 %wrong to {t}
  %back = select i1 %wrong, {t} %b, {t} 0
  %result = add {t} {value}, {correction}
  ret {t} %result
}}"""
