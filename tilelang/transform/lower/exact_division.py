# SPDX-License-Identifier: Apache-2.0
"""Quotients by divisors that many elements share: one reciprocal, and three instructions an element.

Before:  for i, j: Y[i, j] = X[i, j] / scale[i]
After:   fits = 1
         for i, j: Y[i, j] = div_shared(X[i, j], scale[i], fits)
         if not fits: fits = 1; for i, j: Y[i, j] = div_shared(.., fits, zeros)
         if not fits: for i, j: Y[i, j] = X[i, j] / scale[i]

Ensures:  the bits of an IEEE division. With y = 1 / b, q = a y and r = q b - a, each rounded once, q - r y rounds to
          a / b rounded, unless numbers leave the range of float32. (q is at most 1.5 ulp off, so r has at most 25 bits
          and loses one; the sum errs by less than 2^-22 ulp, and only quotients so near to the middle of two numbers
          could round otherwise: all of them, a few for each of the 2^23 divisors, have been tried.) `fits` says whether
          every quotient of the thread was in the range where this holds; it holds for zeros, but to ask for them costs.
Does not: touch loops that cannot be run again: those that read what they write, add atomically, or call anything.

An IEEE division of its own takes 8 instructions and a branch that keeps its neighbours from overlapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.attrs import DEVICE_OP_PREFIX, LOCAL
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_list, dtype_of, walk_list
from tilelang.ir.walk import collect, vars_in
from tilelang.transform.lower.context import Stmt
from tilelang.transform.lower.slots import Slots

__all__ = ["FITS", "shared_division"]

FITS = "fits"
MIN_SHARED = 4  # quotients by one divisor, from which on the reciprocal and the test pay
_PURE = frozenset(DEVICE_OP_PREFIX + name for name in ("min_nan", "max_nan", "max3", "ex2", "div_full"))


def shared_division(body: Stmt, slots: Slots, variables: Sequence[Any]) -> tuple[Any, Stmt, Stmt] | None:
    """(flag, body with shared reciprocals, the same with a test for zeros); None where nothing is gained or the body
    cannot be run again."""
    found = [q for q in collect(body, tirx.Div) if dtype_of(q) == "float32" and _is_shared(q.b, slots, variables)]
    if not found or slots.replicated or not _can_run_again(body):
        return None
    flag = tirx.decl_buffer((1,), "int32", FITS, scope=LOCAL, layout=None)

    def divided(zeros: bool) -> Stmt:
        def divide(node: Any) -> Any:
            if not any(node.same_as(q) for q in found):
                return node
            at = tirx.address_of(tirx.BufferLoad(flag, [0]))
            return device_op("div_shared", node.a, node.b, at, zeros=zeros)

        return tvm_ffi.structural_map(body, (tirx.Div, divide))

    return flag, divided(False), divided(True)


def _is_shared(divisor: Any, slots: Slots, variables: Sequence[Any]) -> bool:
    """Do many slots of a thread divide by the same value?"""
    used = vars_in(divisor)
    moving = [x for v, x in zip(variables, slots.index, strict=True) if v in used]
    if not moving:
        return slots.count >= MIN_SHARED
    thread = np.stack([x[0] for x in moving], axis=1)  # all threads have their slots in one pattern
    return slots.count >= MIN_SHARED * len(np.unique(thread, axis=0))


def _can_run_again(body: Stmt) -> bool:
    """Does a second run of the body give what the first has given?"""
    stmts = list(walk_list(as_list(body)))
    if not all(isinstance(s, tirx.BufferStore | tirx.Bind | tirx.IfThenElse | tirx.SeqStmt) for s in stmts):
        return False
    written = {s.buffer for s in stmts if isinstance(s, tirx.BufferStore)}
    if any(load.source in written for load in collect(body, ir.TensorLoad)):
        return False
    names = (str(getattr(call.op, "name", "")) for call in collect(body, ir.Call))
    return all(name in _PURE or _is_arithmetic(name) for name in names)


_MEMORY = frozenset({"address_of", "buffer_data", "tvm_access_ptr", "call_extern", "call_pure_extern"})


def _is_arithmetic(name: str) -> bool:
    space, _, rest = name.rpartition(".")
    return space in ("tirx", "prim") and rest not in _MEMORY and "call" not in rest
