# SPDX-License-Identifier: Apache-2.0
"""Integer shifts by a run-time amount, as functions of their own.

A shift by the width or more leaves 0, or the sign of a signed number that is shifted right, as the device's
instructions do it; LLVM gives such a shift no value. The amount is taken as unsigned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilelang.ir import walk
from tilelang.ir.stmts import const_int, dtype_of

__all__ = ["call_shifts", "shift_texts"]

_NODES = {tirx.LShift: "shl", tirx.RShift: "shr"}
_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


def call_shifts(body: Any) -> Any:
    """The statement with shifts that may reach the width as calls."""

    def call(node: Any) -> Any:
        dtype = dtype_of(node)
        if dtype not in _BITS or const_int(node.b) in range(_BITS[dtype]):
            return node
        return tirx.call_pure_extern(dtype, f"tl_{_NODES[type(node)]}_{dtype}", node.a, node.b)

    return walk.rewrite(body, dict.fromkeys(_NODES, call))


def shift_texts() -> dict[str, Callable[[], str]]:
    """Definitions by name, in LLVM's language."""
    table: dict[str, Callable[[], str]] = {}
    for op in _NODES.values():
        for dtype in _BITS:
            table[f"tl_{op}_{dtype}"] = lambda op=op, dtype=dtype: _text(op, dtype)
    return table


def _text(op: str, dtype: str) -> str:
    bits = _BITS[dtype]
    t, fills = f"i{bits}", op == "shr" and not dtype.startswith("u")
    instruction = "ashr" if fills else {"shl": "shl", "shr": "lshr"}[op]
    beyond = f"ashr {t} %a, {bits - 1}" if fills else f"and {t} %a, 0"
    return f"""
define internal {t} @tl_{op}_{dtype}({t} %a, {t} %b) alwaysinline nounwind {{
  %inside = icmp ult {t} %b, {bits}
  %amount = select i1 %inside, {t} %b, {t} 0
  %shifted = {instruction} {t} %a, %amount
  %beyond = {beyond}
  %result = select i1 %inside, {t} %shifted, {t} %beyond
  ret {t} %result
}}"""
