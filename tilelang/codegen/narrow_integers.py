# SPDX-License-Identifier: Apache-2.0
"""8- and 16-bit integers wrap at their own width.

Before:  (a << 4) >> 4                    with uint8 a, which C computes in int: gives a back
After:   uint8(int32(a) << 4) >> 4        gives the low nibble

C promotes narrow operands to int; a result that is used inside an expression must be cut to its width first.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

__all__ = ["wrap_narrow_integers"]

# Results that may leave the range of their operands' type. Right shifts, and, or, xor, min, max and division of wrapped
# operands stay inside.
_WRAPPING = (tirx.Add, tirx.Sub, tirx.Mul, tirx.LShift)


def wrap_narrow_integers(func: Any) -> Any:
    """The function with arithmetic on narrow integers done in int32 and cut to its type."""

    def wrap(node: Any) -> Any:
        dtype = tvm.DataType(str(node.ty.dtype))
        if dtype.type_code not in (0, 1) or dtype.bits not in (8, 16):  # signed and unsigned integers
            return node
        wide = f"int32x{dtype.lanes}" if dtype.lanes > 1 else "int32"
        return tirx.Cast(str(dtype), type(node)(tirx.Cast(wide, node.a), tirx.Cast(wide, node.b)))

    def invert(node: Any) -> Any:
        dtype = tvm.DataType(str(node.ty.dtype))
        if dtype.type_code not in (0, 1) or dtype.bits not in (8, 16):
            return node
        wide = f"int32x{dtype.lanes}" if dtype.lanes > 1 else "int32"
        return tirx.Cast(str(dtype), tirx.BitwiseNot(tirx.Cast(wide, node.a)))

    rules = [*((kind, wrap) for kind in _WRAPPING), (tirx.BitwiseNot, invert)]
    return tvm_ffi.structural_map(func, rules)
