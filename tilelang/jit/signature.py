# SPDX-License-Identifier: Apache-2.0
"""From a PrimFunc's parameters to the runtime's signature: argument specs, and a definition for every shape symbol.

Expressions become the runtime's postfix text here, since the runtime must not know TVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import ir, tirx
from tvm.tirx import decl_buffer, is_buffer_var

from tilelang.ir.attrs import POINTERS
from tilelang.ir.stmts import as_list, substitute
from tilelang.ir.symbols import definitions
from tilelang.runtime.signature import ScalarArg, Signature, Slot, TensorArg

__all__ = ["SlotTable", "expression_text", "named_handles", "normalize_out_idx", "signature_of"]

_HANDLE = "_handle"  # what callers know the address of a tensor parameter by

_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul",
    "FloorDiv": "floordiv", "FloorMod": "floormod", "Div": "truncdiv", "Mod": "truncmod",
    "Min": "min", "Max": "max", "LT": "lt", "LE": "le", "EQ": "eq", "NE": "ne", "And": "and", "Or": "or",
    "LShift": "shl", "RShift": "shr", "BitwiseAnd": "band", "BitwiseOr": "bor", "BitwiseXor": "bxor",
}  # fmt: skip
_SWAPPED = {"GT": "lt", "GE": "le"}
_CALLS = {
    "prim.shift_left": "shl", "prim.shift_right": "shr", "prim.bitwise_and": "band", "prim.bitwise_or": "bor",
    "prim.bitwise_xor": "bxor", "prim.if_then_else": "select",
}  # fmt: skip


class SlotTable:
    """Symbols that have a value at launch, by their Var."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.slots: list[Slot] = []

    def add(self, var: Any, kind: str, arg: int, dim: int = 0) -> None:
        names = {s.name for s in self.slots}
        name, suffix = var.name, 1
        while name in names:
            name, suffix = f"{var.name}_{suffix}", suffix + 1
        self.numbers[var] = len(self.slots)
        self.slots.append(Slot(name, kind, arg, dim, str(var.ty.dtype)))


def expression_text(expr: Any, numbers: dict[Any, int]) -> str:
    """`expr` as postfix text. Raises `KeyError(var)` for a symbol without a slot, `ValueError` for other forms."""
    if isinstance(expr, int):
        return str(expr)
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, ir.Var):
        return f"s{numbers[expr]}"
    name = type(expr).__name__

    def texts(*parts: Any) -> str:
        return " ".join(expression_text(p, numbers) for p in parts)

    if name in _BINARY:
        return f"{texts(expr.a, expr.b)} {_BINARY[name]}"
    if name in _SWAPPED:
        return f"{texts(expr.b, expr.a)} {_SWAPPED[name]}"
    if name == "Not":
        return f"{texts(expr.a)} not"
    if name == "Cast" and str(expr.ty.dtype).startswith(("int", "uint", "bool")):
        return expression_text(expr.value, numbers)
    if name == "Select":
        return f"{texts(expr.condition, expr.true_value, expr.false_value)} select"
    operation = _CALLS.get(getattr(getattr(expr, "op", None), "name", ""))
    if operation is not None:
        return f"{texts(*expr.args)} {operation}"
    raise ValueError(f"{expr} cannot be computed by the launcher")


def named_handles(func: Any) -> Any:
    """The function with tensor parameters called `<argument>_handle`; scalars keep their names."""
    renamed = {}
    for p in func.params:
        if is_buffer_var(p) and not p.name.endswith(_HANDLE):
            ty = p.ty
            renamed[p] = decl_buffer(
                ty.shape, str(ty.dtype), p.name + _HANDLE, strides=list(ty.strides) or None, scope=ty.storage_scope,
                layout=None,
            )  # fmt: skip
    params = [renamed.get(p, p) for p in func.params]
    return tirx.PrimFunc(params, substitute(func.body, renamed), func.ret_type, func.attrs, func.span)


def normalize_out_idx(out_idx: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Positions of outputs, negative ones counted from the end. Raises `ValueError` for a bad or repeated position,
    `TypeError` for what is no position.
    """
    if out_idx is None:
        return ()
    every: list[Any] = list(out_idx) if isinstance(out_idx, list | tuple) else [out_idx]
    given = [i for i in every if isinstance(i, int) and not isinstance(i, bool)]
    if len(given) != len(every):
        raise TypeError(f"out_idx is an int or a list of ints, got {out_idx!r}")
    positions = []
    for index in given:
        if not -count <= index < count:
            raise ValueError(f"out_idx {index} is out of range: the function has {count} parameters")
        positions.append(index % count)
    if len(set(positions)) != len(positions):
        raise ValueError(f"out_idx {given} names a parameter twice")
    return tuple(positions)


def _find_slots(params: Sequence[Any], outputs: tuple[int, ...], pointers: frozenset[str]) -> SlotTable:
    table = SlotTable()
    for i, param in enumerate(params):
        if (
            not is_buffer_var(param)
            and param.name not in pointers
            and str(param.ty.dtype).startswith(("int", "uint", "bool"))
        ):
            table.add(param, "scalar", i)
    for found in definitions(params, tuple(table.numbers), outputs):
        table.add(found.var, found.kind, found.arg, found.dim)
    return table


def signature_of(func: Any, outputs: tuple[int, ...] = ()) -> tuple[Signature, dict[Any, int]]:
    """The signature of a PrimFunc and the slot number of each symbol.

    Raises `ValueError` where an output is a scalar or has no dimensions, or where a symbol of a shape has no
    definition.
    """
    name = str(func.attrs["global_symbol"]) if func.attrs and "global_symbol" in func.attrs else "main"
    params = list(func.params)
    pointers = frozenset(str(p) for p in (func.attrs or {}).get(POINTERS, []))
    table = _find_slots(params, outputs, pointers)
    args: list[TensorArg | ScalarArg] = []
    for i, param in enumerate(params):
        if is_buffer_var(param):
            args.append(_tensor_arg(param, table.numbers))
        else:
            args.append(ScalarArg(param.name, "handle" if param.name in pointers else _dtype_of(param)))
        if i in outputs and not (is_buffer_var(param) and len(param.ty.shape)):
            raise ValueError(f"{name}(): output '{param.name}' must be a tensor with at least one dimension")
    checks = tuple(_preconditions(func, table.numbers))
    return Signature(name, tuple(args), tuple(table.slots), outputs, preconditions=checks), table.numbers


def _preconditions(func: Any, numbers: dict[Any, int]) -> Iterator[tuple[str, str]]:
    """The assertions outside of launches, as expression text and message."""
    binds: dict[Any, Any] = {}
    for stmt in as_list(func.body):
        if isinstance(stmt, tirx.Bind):
            binds[stmt.var] = substitute(stmt.value, binds)
        elif isinstance(stmt, tirx.AssertStmt):
            condition = substitute(stmt.condition, binds)
            try:
                text = expression_text(condition, numbers)
            except (KeyError, ValueError) as error:
                raise ValueError(f"the assertion {condition} cannot be checked at a call: {error}") from None
            yield text, "".join(str(getattr(part, "value", part)) for part in stmt.message_parts)


def _dtype_of(param: Any) -> str:
    return str(getattr(param.ty, "dtype", "handle"))


def _tensor_arg(param: Any, numbers: dict[Any, int]) -> TensorArg:
    try:
        shape = tuple(expression_text(d, numbers) for d in param.ty.shape)
        strides = tuple(expression_text(s, numbers) for s in param.ty.strides)
    except KeyError as missing:
        raise ValueError(
            f"argument '{param.name}': the value of symbol {missing.args[0].name} cannot be told from any input; "
            "let it stand alone as a dimension or stride of an input tensor, or pass it as a scalar"
        ) from None
    return TensorArg(param.name, str(param.ty.dtype), shape, strides or None)
