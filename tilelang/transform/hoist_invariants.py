# SPDX-License-Identifier: Apache-2.0
"""Moves warp-uniform indices, descriptor starts and held constants out of loops, which the CUDA compiler cannot: to it
they are opaque.

Before:  for k: wg = uniform(tid / 128); start = wgmma_desc(..) + wg * c; wgmma(start + f(stage), ..)
After:   wg = uniform(tid / 128); start = wgmma_desc(..) + wg * c; for k: wgmma(start + f(stage), ..)

Requires: level 4.
Ensures:  a Bind at the top of a serial loop whose value calls one of PURE and depends on nothing the loop defines or
          stores stands in
          front of the loop; equal ones become one.
Does not: touch plain arithmetic: the CUDA compiler weighs that against registers.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.device_ops import DEVICE_OPS
from tilelang.ir.stmts import bodies, is_uniform_loop, map_kernels, substitute, walk_list, with_bodies

__all__ = ["hoist_invariants"]

PURE = frozenset(DEVICE_OPS[name].op_name for name in ("uniform", "wgmma_desc", "held"))
_HARMLESS = frozenset({"tirx.address_of", "tirx.buffer_data"})


def hoist_invariants(func: Any) -> Any:
    """The function with invariant definitions in front of their loops."""
    return map_kernels(func, lambda kernel: kernel.with_body(_visit(kernel.body)))


def _visit(stmts: list[Any]) -> list[Any]:
    out: list[Any] = []
    names: dict[Any, Any] = {}  # definitions that turned out equal to an earlier one
    for stmt in stmts:
        inner = bodies(stmt)
        if not inner:
            out.append(substitute(stmt, names))
            continue
        new = [_visit(body) for body in inner]
        lifted: list[Any] = []
        if is_uniform_loop(stmt):
            lifted, new[0] = _lift(stmt, new[0])
        for bind in (substitute(b, names) for b in lifted):
            same = next(
                (b for b in out if isinstance(b, tirx.Bind) and tvm_ffi.structural_equal(b.value, bind.value)), None
            )
            if same is not None and _opaque(bind.value):
                names[bind.var] = same.var
            else:
                out.append(bind)
        out.append(substitute(with_bodies(stmt, new), names))
    return out


def _lift(loop: Any, body: list[Any]) -> tuple[list[Any], list[Any]]:
    """(definitions that may stand in front of the loop, the rest of its body)."""
    inside = {loop.loop_var}
    for s in walk_list(body):
        if isinstance(s, tirx.Bind):
            inside.add(s.var)
        elif isinstance(s, tirx.For):
            inside.add(s.loop_var)
        elif isinstance(s, tirx.AllocBuffer | tirx.DeclBuffer):
            inside.add(s.buffer)
    lifted, rest = [], []
    for s in body:
        if isinstance(s, tirx.Bind) and _opaque(s.value) and not _mentions(s.value, inside):
            inside.discard(s.var)
            lifted.append(s)
        else:
            rest.append(s)
    return lifted, rest


def _opaque(value: Any) -> bool:
    """Calls one of PURE and nothing else that matters; loads nothing."""
    found: list[Any] = []
    loads: list[Any] = []
    tvm_ffi.structural_walk(
        value, [(ir.Call, lambda c: found.append(getattr(c.op, "name", ""))), (ir.TensorLoad, loads.append)]
    )
    addressed = sum(1 for name in found if name == "tirx.address_of")
    return len(loads) <= addressed and bool(PURE & set(found)) and set(found) <= PURE | _HARMLESS


def _mentions(value: Any, variables: set[Any]) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(value, (ir.Var, lambda v: found.append(v) if v in variables else None))
    return bool(found)
