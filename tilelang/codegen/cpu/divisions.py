# SPDX-License-Identifier: Apache-2.0
"""Integer division by a divisor that is known at run time only, as a function of its own.

* No divisor ends the process: x // 0 is -1 (all bits), x % 0 is x, and the least number by -1 is itself, on every
  target that runs on a processor. Guarded elements, and those that a ragged tile is filled up with, may well be divided
  by 0; a device gives some number there too.
* TVM's lowering of a floor division binds temporaries inside the expression; where a bound value is copied into several
  uses, the copies bind the same names to different values, which its LLVM code generator refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilelang.ir import walk
from tilelang.ir.stmts import const_int, dtype_of

__all__ = ["call_divisions", "division_texts", "divisors"]

_NODES = {tirx.FloorDiv: "floordiv", tirx.FloorMod: "floormod", tirx.Div: "truncdiv", tirx.Mod: "truncmod"}
_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


def call_divisions(body: Any) -> Any:
    """The statement with integer divisions and remainders by run-time values as calls."""

    def call(node: Any) -> Any:
        if not _is_by_value(node):
            return node
        dtype = dtype_of(node)
        return tirx.call_pure_extern(dtype, f"tl_{_NODES[type(node)]}_{dtype}", node.a, node.b)

    return walk.rewrite(body, dict.fromkeys(_NODES, call))


def divisors(expr: Any) -> list[Any]:
    """What an expression divides integers by, where that is known at run time only."""
    return [node.b for kind in _NODES for node in walk.collect(expr, kind, _is_by_value)]


def _is_by_value(node: Any) -> bool:
    return dtype_of(node) in _BITS and not const_int(node.b)


def division_texts() -> dict[str, Callable[[], str]]:
    """Definitions by name, in LLVM's language."""
    table: dict[str, Callable[[], str]] = {}
    for op in _NODES.values():
        for dtype, bits in _BITS.items():
            name = f"tl_{op}_{dtype}"
            text = _unsigned_text if dtype.startswith("u") else _signed_text
            table[name] = lambda text=text, name=name, op=op, bits=bits: text(name, op, f"i{bits}")
    return table


def _unsigned_text(name: str, op: str, t: str) -> str:
    what, by_zero = ("urem", "%a") if op.endswith("mod") else ("udiv", "-1")
    return f"""
define internal {t} @{name}({t} %a, {t} %b) alwaysinline nounwind {{
  %zero = icmp eq {t} %b, 0
  %safe = select i1 %zero, {t} 1, {t} %b
  %value = {what} {t} %a, %safe
  %result = select i1 %zero, {t} {by_zero}, {t} %value
  ret {t} %result
}}"""


def _signed_text(name: str, op: str, t: str) -> str:
    """Towards zero; a floor is corrected where the remainder and the divisor have different signs."""
    floors, remainder = op.startswith("floor"), op.endswith("mod")
    value, by_zero = ("%r", "%a") if remainder else ("%q", "-1")
    correction = ("%back" if remainder else "%carry") if floors else "0"
    return f"""
define internal {t} @{name}({t} %a, {t} %b) alwaysinline nounwind {{
  %zero = icmp eq {t} %b, 0
  %minus = icmp eq {t} %b, -1
  %trivial = or i1 %zero, %minus
  %safe = select i1 %trivial, {t} 1, {t} %b
  %quotient = sdiv {t} %a, %safe
  %r = srem {t} %a, %safe
  %negated = sub {t} 0, %a
  %q = select i1 %minus, {t} %negated, {t} %quotient
  %some = icmp ne {t} %r, 0
  %signs = xor {t} %r, %b
  %differ = icmp slt {t} %signs, 0
  %wrong = and i1 %some, %differ
  %carry = sext i1 %wrong to {t}
  %back = select i1 %wrong, {t} %b, {t} 0
  %value = add {t} {value}, {correction}
  %result = select i1 %zero, {t} {by_zero}, {t} %value
  ret {t} %result
}}"""
