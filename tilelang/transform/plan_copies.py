# SPDX-License-Identifier: Apache-2.0
"""Chooses the instruction of every copy.

Before:  copy(A[..], As)             copy(C_frag, C[..])
After:   copy(A[..], As, via=tma_load)   C_cast = cast(C_frag); copy(C_cast, C_stage, via=stmatrix); copy(C_stage, C[..], via=tma_store)

Requires: level 1, `inst` set on every gemm.
Ensures:  every copy has `via` (loop | tma_load | tma_store | stmatrix | cp_async); notes say why the copy engine was not used.
Does not: expand loops (expand_elementwise), place barriers (schedule_pipelines), or choose shared layouts (infer_layouts).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from tilelang.analysis.copies import bits_of, tile_extents, tma_obstacle
from tilelang.ir.attrs import FRAGMENT, GLOBAL, NUM_STAGES, SHARED_DYN, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, bodies, dtype_of, map_kernels, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.target.arch import Arch

__all__ = ["plan_copies"]


def plan_copies(func: Any, arch: Arch, notes: list[str] | None = None) -> Any:
    """The function with `via` on every copy. `notes` collects why a copy is not a TMA transfer."""
    return map_kernels(func, lambda kernel: _Planner(kernel, arch, notes if notes is not None else []).run())


def written_tensors(kernel: Kernel) -> set[Any]:
    """Global buffers that the kernel stores to."""
    out: set[Any] = set()
    for stmt in walk_list(kernel.body):
        if isinstance(stmt, tirx.BufferStore) and stmt.buffer.ty.storage_scope == GLOBAL:
            out.add(stmt.buffer)
        op = TileOp.from_stmt(stmt)
        if op is not None:
            out |= {r.source for r in op.writes if r.source.ty.storage_scope == GLOBAL}
    return out


@dataclass
class _Planner:
    kernel: Kernel
    arch: Arch
    notes: list[str]
    staging: list[Any] = field(default_factory=list)

    def run(self) -> Kernel:
        self.written = written_tensors(self.kernel)
        ops = [TileOp.from_stmt(s) for s in walk_list(self.kernel.body)]
        self.has_mma = any(op is not None and op.name == "gemm" and op.attrs["inst"] in ("wgmma", "mma") for op in ops)
        body = self.plan(self.kernel.body, pipelined=False)
        return self.kernel.with_body([*self.staging, *body])

    def plan(self, stmts: list[Any], pipelined: bool) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "copy":
                out += self.plan_copy(op, pipelined)
                continue
            inner = bodies(stmt)
            here = isinstance(stmt, tirx.For) and int(stmt.annotations.get(NUM_STAGES, 0)) > 0
            new = [self.plan(b, here if isinstance(stmt, tirx.For) else pipelined) for b in inner]
            out.append(with_bodies(stmt, new) if inner else stmt)
        return out

    def plan_copy(self, op: TileOp, pipelined: bool) -> list[Any]:
        src, dst = op["src"].source, op["dst"].source
        scopes = (src.ty.storage_scope, dst.ty.storage_scope)
        if scopes == (FRAGMENT, GLOBAL):
            staged = self.stage_store(op)
            if staged:
                return staged
        obstacle = tma_obstacle(op, self.written) if self.arch.tma else f"{self.arch.name} has no copy engine"
        if obstacle is None:
            return [_with_via(op, "tma_load" if scopes[0] == GLOBAL else "tma_store")]
        if scopes[0] == GLOBAL and scopes[1] in SHARED_SCOPES:
            self.notes.append(f"{_place(op)}copy of {src.name} to {dst.name} does not use TMA: {obstacle}")
            if pipelined and self.can_cp_async(op):
                return [_with_via(op, "cp_async")]
        return [_with_via(op, "loop")]

    def can_cp_async(self, op: TileOp) -> bool:
        return (
            self.arch.cp_async
            and op.attrs["prefer"] in ("", "cp_async")
            and dtype_of(op["src"].source) == dtype_of(op["dst"].source)
            and op["src"].source not in self.written
            and tile_extents(op["src"]) is not None
        )

    def stage_store(self, op: TileOp) -> list[Any]:
        """A 16-bit accumulator tile goes through shared memory: stmatrix, then one TMA store per box."""
        src, dst = op["src"], op["dst"]
        extents = tile_extents(src)
        if not (self.arch.tma and self.has_mma and bits_of(dst.source) == 16 and extents and len(extents) == 2):
            return []
        if extents[0] % 16 or extents[1] % 16:
            return []
        name, dtype = src.source.name, dtype_of(dst.source)
        stage = tirx.decl_buffer(extents, dtype, f"{name}_stage", scope=SHARED_DYN, layout=None)
        store = _copy(region_of(stage), dst, "tma_store", op)
        if tma_obstacle(TileOp.from_stmt(store), set()) is not None:
            return []
        self.staging.append(tirx.AllocBuffer(stage, span=op.span))
        if dtype_of(src.source) == dtype:
            return [_copy(src, region_of(stage), "stmatrix", op), store]
        cast = tirx.decl_buffer(extents, dtype, f"{name}_cast", scope=FRAGMENT, layout=None)
        self.staging.append(tirx.AllocBuffer(cast, span=op.span))
        return [_copy(src, region_of(cast), "loop", op), _copy(region_of(cast), region_of(stage), "stmatrix", op), store]


def _place(op: TileOp) -> str:
    return f"line {op.span.line}: " if op.span is not None else ""


def _copy(src: Any, dst: Any, via: str, like: TileOp) -> Any:
    return make_tile_op("copy", {"src": src, "dst": dst}, {**like.attrs, "via": via}, like.span)


def _with_via(op: TileOp, via: str) -> Any:
    return _copy(op["src"], op["dst"], via, op)
