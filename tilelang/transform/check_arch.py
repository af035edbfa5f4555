# SPDX-License-Identifier: Apache-2.0
"""Refuses operations and types of the program that the architecture does not have, at the line where they stand.

Requires: level 1.
Ensures:  every device op and type of the program exists on the architecture; elements have whole bytes.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.manual import device_ops_in
from tilelang.ir.attrs import ARRIVE_COUNTS
from tilelang.ir.stmts import dtype_of, expressions_of, launches, walk_list
from tilelang.ir.walk import collect, is_buffer
from tilelang.target.arch import Arch
from tilelang.transform.errors import ForeignType, NeedsArch, SubByteStorage

__all__ = ["check_arch"]

_FOREIGN = ("float8_e4m3fnuz", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn")  # of other vendors, and of sm_100


def check_arch(func: Any, arch: Arch) -> Any:
    """The function as it is. Raises NeedsArch, ForeignType and SubByteStorage."""
    for param in func.params:
        if is_buffer(param):
            _check_bytes(param, func.body.span)
    for kernel in launches(func):
        for stmt in walk_list(kernel.body):
            for e in expressions_of(stmt):
                for cast in collect(e, tirx.Cast):
                    _check_type(dtype_of(cast), cast.span or stmt.span)
            if isinstance(stmt, tirx.AllocBuffer):
                _check_bytes(stmt.buffer, stmt.span)
            if ARRIVE_COUNTS in getattr(stmt, "annotations", {}) and not arch.tma:
                raise NeedsArch(span=stmt.span, what="T.alloc_barrier", needs="sm_90", arch=arch.name)
        for op in device_ops_in(kernel.body):
            if not _has(arch, op.row.needs):
                raise NeedsArch(span=op.span, what=op.name, needs=op.row.needs, arch=arch.name)
    return func


def _check_type(dtype: str, span: Any) -> None:
    if dtype.startswith(_FOREIGN):
        raise ForeignType(span=span, dtype=dtype)


def _check_bytes(buffer: Any, span: Any) -> None:
    dtype = dtype_of(buffer)
    _check_type(dtype, span)
    if bits_of(buffer) < 8 and dtype != "bool":
        raise SubByteStorage(span=span, buffer=buffer.name, bits=bits_of(buffer), dtype=dtype)


def _has(arch: Arch, needs: str) -> bool:
    """`sm_90a` is that very architecture, `sm_90` that one and later ones."""
    return arch.name == needs if needs.endswith("a") else arch.sm >= int(needs.removeprefix("sm_"))
