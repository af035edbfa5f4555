# SPDX-License-Identifier: Apache-2.0
"""TVM's simplifier for integers, kept off float numbers.

It treats every number as one of a field: x - x is 0, x == x holds, not x < y is y <= x. NaN and infinity obey none of
these. It also refuses constants beyond a narrow type's largest, which a conversion rounds. What it cannot look into it
leaves alone, so float operators and conversions to narrow floats are calls while it runs.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

__all__ = ["simplify_integers"]

_OPERATORS = {
    f"tl.float.{kind.__name__}": kind
    for kind in (
        *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min),
        *(tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE),
    )
}
_NAMES = {kind: name for name, kind in _OPERATORS.items()}
_CAST = "tl.float.Cast"
for _name in (*_OPERATORS, _CAST):
    ir.register_op_attr(_name, "TCallEffectKind", tirx.CallEffectKind.Opaque.value, level=20)
    ir.register_op_attr(_name, "TScriptPrinterName", _name.replace(".", "_"), level=20)


def simplify_integers(mod: Any) -> Any:
    """The module with its integer and boolean arithmetic simplified; float arithmetic stays as it is."""
    return _shown(tirx.transform.StmtSimplify()(_hidden(mod)))


@tirx.transform.prim_func_pass(opt_level=0, name="tl.HideFloats")
def _hidden(func: Any, _mod: Any, _ctx: Any) -> Any:
    def hide(node: Any) -> Any:
        if not _is_float(node.a):
            return node
        return ir.Call(ir.Op.get(_NAMES[type(node)]), [node.a, node.b], ret_ty=str(node.ty.dtype), span=node.span)

    def hide_cast(node: Any) -> Any:
        if not _is_float(node) or tvm.DataType(str(node.ty.dtype)).bits >= 32:
            return node
        return ir.Call(ir.Op.get(_CAST), [node.value], ret_ty=str(node.ty.dtype), span=node.span)

    return tvm_ffi.structural_map(func, [*((kind, hide) for kind in _NAMES), (tirx.Cast, hide_cast)])


@tirx.transform.prim_func_pass(opt_level=0, name="tl.ShowFloats")
def _shown(func: Any, _mod: Any, _ctx: Any) -> Any:
    def show(node: Any) -> Any:
        name = getattr(node.op, "name", "")
        if name == _CAST:
            return tirx.Cast(str(node.ty.dtype), node.args[0], span=node.span)
        kind = _OPERATORS.get(name)
        return kind(*node.args, span=node.span) if kind is not None else node

    return tvm_ffi.structural_map(func, [(ir.Call, show)])


def _is_float(expr: Any) -> bool:
    dtype = str(expr.ty.dtype)
    return dtype.startswith(("float", "bfloat")) and tvm.DataType(dtype).bits >= 8
