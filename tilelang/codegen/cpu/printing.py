# SPDX-License-Identifier: Apache-2.0
"""Printing from a program on the host.

C's printf takes any number of arguments, which TVM's calls cannot say: each list of types gets a function of its own.
"""

from __future__ import annotations

import re
from typing import Any

from tvm import ir, tirx

from tilelang.codegen.cpu.loops import cast
from tilelang.ir import walk
from tilelang.ir.stmts import Kernel, dtype_of, rebuild

__all__ = ["DECLARATIONS", "is_print", "print_by_block", "print_call", "print_text"]

_NAME = "tl_printf_"
_TYPES = {"i": "i32", "l": "i64", "d": "double", "p": "ptr"}
DECLARATIONS = "declare i32 @printf(ptr, ...)\ndeclare i32 @fflush(ptr)"


def is_print(name: str) -> bool:
    """Is this the name of a function that `print_call` calls."""
    return re.fullmatch(f"{_NAME}[{''.join(_TYPES)}]*", name) is not None


def print_by_block(kernel: Kernel) -> Kernel:
    """The launch, where lines that are printed in a T.Parallel nest name thread 0: which one it is would be the
    compiler's choice."""
    threads = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("threadIdx")}

    def by_block(call: Any) -> Any:
        if getattr(call.op, "name", "") != "tirx.call_extern" or call.args[0].value != "printf":
            return call
        return tirx.call_extern("int32", *(tirx.const(0, "int32") if a in threads else a for a in call.args))

    def nest(stmt: Any) -> Any:
        if isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL:
            return walk.rewrite(stmt, {ir.Call: by_block})
        return stmt

    return kernel.with_body(rebuild(kernel.body, nest))


def print_call(values: list[Any]) -> Any:
    """printf of a format and its values, promoted as C does; what was printed so far is flushed."""
    promoted = [_promoted(v) for v in values]
    kinds = "".join(kind for kind, _ in promoted[1:])
    return tirx.call_extern("int32", f"{_NAME}{kinds}", *(value for _, value in promoted))


def _promoted(value: Any) -> tuple[str, Any]:
    if isinstance(value, ir.StringImm):
        return "p", value
    dtype = dtype_of(value)
    if "float" in dtype:
        return "d", cast("float64", value)
    if dtype in ("int64", "uint64"):
        return "l", value
    return "i", value if dtype in ("int32", "uint32") else cast("int32", value)


def print_text(name: str) -> str:
    """The definition of a function that `print_call` calls, for the declarations of `DECLARATIONS`."""
    types = ["ptr", *(_TYPES[kind] for kind in name.removeprefix(_NAME))]
    values = ", ".join(f"{t} %a{number}" for number, t in enumerate(types))
    return f"""
define internal i32 @{name}({values}) nounwind {{
  %r = call i32 (ptr, ...) @printf({values})
  %f = call i32 @fflush(ptr null)
  ret i32 %r
}}"""
