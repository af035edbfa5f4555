# SPDX-License-Identifier: Apache-2.0
"""Puts operands of tile ops where the ops can take them; one half of making layouts possible.

Before:  reduce(S_shared, m)                     gemm(P[0:64, :], Vs, acc)
After:   F = alloc_fragment                          P_tile = alloc_fragment
         copy(S_shared, F); reduce(F, m)             copy(P[0:64, :], P_tile); gemm(P_tile, Vs, acc)

Requires: level 1 with `inst` set on gemms.
Ensures:  fragments are whole wherever a gemm or reduce uses one; reduce works on fragments, cumulate on shared memory;
          fma gemms read a and b from shared memory; c of a gemm is a fragment.
Does not: expand the copies it adds (expand_elementwise).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import FRAGMENT, SHARED_DYN, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, const_int, dtype_of, map_kernels, rebuild, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of

__all__ = ["stage_operands"]


def stage_operands(func: Any) -> Any:
    """The function with every operand of a tile op where the op can take it."""
    return map_kernels(func, lambda kernel: _Stager(kernel).run())


class _Stager:
    """Collects the buffers it adds; they go to the top of the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.allocs: list[Any] = []
        decls = [s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer | tirx.DeclBuffer)]
        self.names = {s.buffer.name for s in decls}

    def run(self) -> Kernel:
        body = rebuild(self.kernel.body, self.visit)
        return self.kernel.with_body([*self.allocs, *body]) if self.allocs else self.kernel

    def visit(self, stmt: Any) -> Any:
        op = TileOp.from_stmt(stmt)
        if op is None:
            return stmt
        rule = {"gemm": self.gemm, "reduce": self.reduce, "cumulate": self.cumulate}.get(op.name)
        return rule(op, stmt) if rule else stmt

    def gemm(self, op: TileOp, stmt: Any) -> Any:
        scopes: dict[str, str | None] = {}
        for name in ("a", "b"):
            scope = op[name].source.ty.storage_scope
            if op.attrs["inst"] == "fma" and scope not in SHARED_SCOPES:
                scopes[name] = SHARED_DYN
            elif scope == FRAGMENT and not _is_whole(op[name]):
                scopes[name] = FRAGMENT
        if not _is_fragment(op["c"]):
            scopes["c"] = FRAGMENT
        clear = const_int(op["clear"]) == 1
        return self.staged(op, stmt, scopes, reads={"a", "b"} | (set() if clear else {"c"}), writes={"c"})

    def reduce(self, op: TileOp, stmt: Any) -> Any:
        scopes: dict[str, str | None] = {name: FRAGMENT for name in ("src", "dst") if not _is_fragment(op[name])}
        return self.staged(op, stmt, scopes, {"src"} | (set() if op.attrs["clear"] else {"dst"}), {"dst"})

    def cumulate(self, op: TileOp, stmt: Any) -> Any:
        scopes: dict[str, str | None] = {
            name: SHARED_DYN for name in ("src", "dst") if op[name].source.ty.storage_scope not in SHARED_SCOPES
        }
        return self.staged(op, stmt, scopes, {"src"}, {"dst"})

    def staged(self, op: TileOp, stmt: Any, scopes: dict[str, str | None], reads: set[str], writes: set[str]) -> Any:
        """`op` with the operands of `scopes` moved to buffers of those scopes, copied in and out as needed."""
        if not scopes:
            return stmt
        operands, before, after = dict(op.operands), [], []
        for name, scope in scopes.items():
            region = op[name]
            held = self.alloc(region, str(scope), op.span)
            operands[name] = region_of(held)
            if name in reads:
                before.append(_copy(region, operands[name], op))
            if name in writes:
                after.append(_copy(operands[name], region, op))
        return [*before, make_tile_op(op.name, operands, dict(op.attrs), op.span), *after]

    def alloc(self, region: Any, scope: str, span: Any) -> Any:
        shape = [const_int(r.extent) for r in region.region]
        name = base = f"{region.source.name}_tile"
        count = 0
        while name in self.names:
            count += 1
            name = f"{base}_{count}"
        self.names.add(name)
        buffer = tirx.decl_buffer(shape, dtype_of(region.source), name, scope=scope, layout=None)
        self.allocs.append(tirx.AllocBuffer(buffer, span=span))
        return buffer


def _is_fragment(region: Any) -> bool:
    return region.source.ty.storage_scope == FRAGMENT and _is_whole(region)


def _is_whole(region: Any) -> bool:
    dims = zip(region.region, region.source.ty.shape, strict=True)
    return all(const_int(r.min) == 0 and const_int(r.extent) == const_int(s) for r, s in dims)


def _copy(src: Any, dst: Any, like: TileOp) -> Any:
    return make_tile_op("copy", {"src": src, "dst": dst}, {"via": "loop"}, like.span)
