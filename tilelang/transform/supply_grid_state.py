# SPDX-License-Identifier: Apache-2.0
"""Gives grid barriers the word of memory through which their blocks meet.

Before:  main(A): launch: ..; grid_sync(); ..
After:   main(A, grid_state: uint32[2]): launch: ..; grid_sync(address_of(grid_state[1])); ..    {TILE_QUEUE: 0}

Requires: level 4.
Ensures:  every grid_sync has its state; the parameter, which TILE_QUEUE announces, is the launcher's and the last one.
Does not: need a header of CUDA's: those of cooperative groups are not part of NVRTC.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import GLOBAL, TILE_QUEUE
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import as_list, as_stmt, rebuild, walk_list
from tilelang.transform.errors import GridBarrierWithoutState

__all__ = ["supply_grid_state"]

_BARRIER = 1  # the word of the launcher's that is the barrier's


def supply_grid_state(func: Any, supplied: bool) -> Any:
    """The function with a state for its grid barriers. Raises GridBarrierWithoutState where none is `supplied`."""
    body = as_list(func.body)
    found = next((s for s in walk_list(body) if _is_grid_sync(s)), None)
    if found is None:
        return func
    if not supplied:
        raise GridBarrierWithoutState(span=found.span)
    own = TILE_QUEUE in (func.attrs or {})
    state = func.params[-1] if own else _state({p.name for p in func.params})
    address = tirx.address_of(state[_BARRIER])

    def supply(stmt: Any) -> Any:
        return device_op("grid_sync", address, supplied=True, span=stmt.span) if _is_grid_sync(stmt) else stmt

    new = as_stmt(rebuild(body, supply))
    if own:
        return func.with_body(new)
    return tirx.PrimFunc([*func.params, state], new, func.ret_type, func.attrs, func.span).with_attr(TILE_QUEUE, 0)


def _is_grid_sync(stmt: Any) -> bool:
    op = DeviceOp.from_node(stmt)
    return op is not None and op.name == "grid_sync" and not op.statics["supplied"]


def _state(taken: set[str]) -> Any:
    name = "grid_state"
    while name in taken:
        name += "_"
    return tirx.decl_buffer((2,), "uint32", name, scope=GLOBAL, layout=None)
