# SPDX-License-Identifier: Apache-2.0
"""Chooses the instruction of every copy.

Before:  copy(A[..], As)             copy(C_frag, C[..])
After:   copy(A[..], As, via=tma_load)   C_cast = cast(C_frag); copy(C_cast, C_stage, via=stmatrix); copy(C_stage,
         C[..], via=tma_store)

Requires: level 1, `inst` set on every gemm.
Ensures:  every copy has `via` (loop | tma_load | tma_store | stmatrix | cp_async | hand_over); notes say why the copy
          engine was not used.
Does not: expand loops (expand_elementwise), place barriers (schedule_pipelines), or choose shared layouts
          (infer_layouts).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from tilelang.analysis.copies import bits_of, tile_extents, tma_obstacle
from tilelang.analysis.effects import own_touches, written_in
from tilelang.analysis.hand_over import HAND_OVER, hand_overs
from tilelang.analysis.loads import load_sites, producer_obstacle
from tilelang.analysis.manual import by_hand
from tilelang.analysis.views import bases
from tilelang.ir.attrs import FRAGMENT, GLOBAL, SHARED_DYN, SHARED_SCOPES
from tilelang.ir.stmts import (
    Kernel,
    bodies,
    const_int,
    dtype_of,
    map_kernels,
    pipeline_stages,
    shape_of,
    walk_list,
    with_bodies,
    with_unique_names,
)
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Arch
from tilelang.transform.errors import NeedsArch, UnsupportedOperand
from tilelang.transform.gather_pieces import gathered, piece_of

__all__ = ["plan_copies"]


def plan_copies(func: Any, arch: Arch, options: CompileOptions | None = None, notes: list[str] | None = None) -> Any:
    """The function with `via` on every copy. `notes` collects why a copy is not a TMA transfer."""
    options, notes = options or CompileOptions(), notes if notes is not None else []
    return map_kernels(func, lambda kernel: _Planner(kernel, arch, options, notes).run())


MIN_STORE_BYTES = 2048  # smaller tiles are not worth the fence, the barrier and the wait of a bulk store


SUM_DTYPES = ("float32", "float16", "bfloat16", "int32", "uint32")  # PTX ISA, "cp.reduce.async.bulk.tensor"


@dataclass
class _Planner:
    kernel: Kernel
    arch: Arch
    options: CompileOptions
    notes: list[str]
    staging: list[Any] = field(default_factory=list)

    def run(self) -> Kernel:
        self.written = {b for b in written_in(self.kernel.body) if b.ty.storage_scope == GLOBAL}
        others = [s for s in walk_list(self.kernel.body) if not _copies(s)]
        self.plainly = {t.buffer for s in others for t in own_touches(s) if t.write} & self.written
        self.values = {s.var: s.value for s in walk_list(self.kernel.body) if isinstance(s, tirx.Bind)}
        # Views of tensors have been hoisted: what is declared here lies at an address that the kernel knows.
        at_addresses = (s for s in walk_list(self.kernel.body) if isinstance(s, tirx.DeclBuffer))
        self.at_addresses = {s.buffer for s in at_addresses if s.buffer.ty.storage_scope == GLOBAL}
        pairs = bases(self.kernel.body).items()
        self.reshaped = {b for pair in pairs if list(pair[0].ty.shape) != list(pair[1].ty.shape) for b in pair}
        ops = [TileOp.from_stmt(s) for s in walk_list(self.kernel.body)]
        gemms = [op for op in ops if op is not None and op.name == "gemm" and op.attrs["inst"] in ("wgmma", "mma")]
        self.has_mma = bool(gemms)
        self.matrices = {op[x].source for op in gemms for x in "ac" if op[x].source.ty.storage_scope == FRAGMENT}
        self.tma = self.arch.tma and self.options.tma
        self.obstacles = self.find_loads()
        self.handed = hand_overs(self.kernel.body, {load for load, why in self.obstacles.items() if why is None})
        body = self.plan(self.kernel.body, pipelined=False)
        return self.kernel.with_body(with_unique_names([*self.staging, *body]))

    def find_loads(self) -> dict[Any, str | None]:
        """For every copy from global to shared memory: why it is not a TMA load by the producer, or None."""
        out: dict[Any, str | None] = {}
        pipelined = False
        for site in load_sites(self.kernel.body):
            op = TileOp.from_stmt(site.stmt)
            if op is None or op.name != "copy" or not _is_load(op):
                continue
            why = (
                self.transfer_obstacle(op, self.written)
                if self.tma
                else f"{self.arch.name} has no copy engine, or it is switched off"
            )
            why = (
                why or self.role_obstacle() or producer_obstacle(site, op["dst"].source, op["src"].source, self.kernel)
            )
            out[site.stmt] = why
            pipelined |= why is None and any(pipeline_stages(s) > 0 for s in site.path)
        if not pipelined:  # a producer pays only when it can run ahead in a loop
            out = {k: v or "no pipelined loop loads by TMA" for k, v in out.items()}
        return out

    def transfer_obstacle(self, op: TileOp, written: set[Any]) -> str | None:
        """Why the copy engine cannot make this copy."""
        buffers = op["src"].source, op["dst"].source
        found = next((b for b in buffers if b in self.at_addresses), None)
        if found is not None:
            return f"{found.name} lies at an address, of which the host makes no tensor map"
        if self.at_addresses & self.written and buffers[0].ty.storage_scope == GLOBAL:
            return "the kernel writes to an address, which may lie in any tensor"
        seen = next((b for b in buffers if b in self.reshaped), None)
        if op.name == "copy" and seen is not None:
            return f"{seen.name} shares its memory with a buffer of another shape"
        return tma_obstacle(op, written, self.values)

    def store_obstacle(self, op: TileOp) -> str | None:
        """Why the copy engine, which could, should not store this tile."""
        tensor = op["dst"].source  # no fence of shared memory orders what threads wrote in front of the transfer
        return f"threads write {tensor.name} as well" if tensor in self.plainly else None

    def role_obstacle(self) -> str | None:
        """Why this kernel cannot have a producer warp."""
        if self.options.warp_specialize is False:
            return "warp specialisation is switched off"
        if by_hand(self.kernel.body):
            return "the program divides its threads, or waits for transfers, by hand"
        if self.kernel.threads % 32 or self.kernel.axis("threadIdx.y") is not None:
            return f"{self.kernel.threads} threads are not whole warps along threadIdx.x"
        if self.kernel.threads > self.arch.max_threads - 128:
            return f"{self.kernel.threads} threads leave no room for a producer"
        return None

    def plan(self, stmts: list[Any], pipelined: bool) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "copy":
                out += self.plan_copy(stmt, op, pipelined)
                continue
            if op is not None and op.name in ("tma_copy_in", "tma_copy_out"):
                self.check_transfer(op)
            piece = piece_of(stmt) if pipelined else None
            if piece is not None and _is_load(piece) and self.can_cp_async(piece):
                self.notes.append(
                    f"{_place(piece)}the pieces of {piece['dst'].source.name} are copied at once, by cp.async"
                )
                out.append(gathered(stmt))
                continue
            inner = bodies(stmt)
            here = pipeline_stages(stmt) > 0 if isinstance(stmt, tirx.For) else pipelined
            out.append(with_bodies(stmt, [self.plan(b, here) for b in inner]) if inner else stmt)
        return out

    def check_transfer(self, op: TileOp) -> None:
        """A transfer that the program asks for takes the copy engine or is an error."""
        if not self.arch.tma:
            raise NeedsArch(span=op.span, what="T.tma_copy", needs="sm_90", arch=self.arch.name)
        why = self.transfer_obstacle(op, self.written if op.name == "tma_copy_in" else set())
        if why is not None:
            shared = op["dst" if op.name == "tma_copy_in" else "src"].source
            fix = "use T.copy, or change the tile so that the copy engine can move it"
            raise UnsupportedOperand(span=op.span, op="T.tma_copy", buffer=shared.name, why=why, fix=fix)

    def plan_copy(self, stmt: Any, op: TileOp, pipelined: bool) -> list[Any]:
        src, dst = op["src"].source, op["dst"].source
        scopes = (src.ty.storage_scope, dst.ty.storage_scope)
        if stmt in self.handed:
            return [_with_via(op, HAND_OVER)]
        if scopes == (FRAGMENT, GLOBAL):
            return self.stage_store(op) or [_with_via(op, "loop")]
        if scopes[0] in SHARED_SCOPES and scopes[1] == GLOBAL:
            bad = self.transfer_obstacle(op, self.written) if self.tma else "no copy engine"
            if op.attrs["add"]:
                return [self.plan_sum(op, bad)]
            bad = bad or self.store_obstacle(op)
            return [_with_via(op, "loop" if bad or _bytes(op["src"]) < MIN_STORE_BYTES else "tma_store")]
        if scopes[0] == FRAGMENT and scopes[1] in SHARED_SCOPES and self.is_matrix_store(op):
            return self.store_matrices(op["src"], op["dst"], op)
        if not _is_load(op):
            return [_with_via(op, "loop")]
        obstacle = self.obstacles[stmt]
        if obstacle is None:
            return [_with_via(op, "tma_load")]
        self.notes.append(f"{_place(op)}copy of {src.name} to {dst.name} does not use TMA: {obstacle}")
        return [_with_via(op, "cp_async" if pipelined and self.can_cp_async(op) else "loop")]

    def plan_sum(self, op: TileOp, obstacle: str | None) -> Any:
        """A tile that is added to a tensor: asked for by name, so also where it is small."""
        dtype = dtype_of(op["dst"].source)
        if obstacle is None and dtype not in SUM_DTYPES:
            obstacle = f"it does not add {dtype}"
        if obstacle is not None:
            self.notes.append(f"{_place(op)}the copy engine does not add {op['src'].source.name}: {obstacle}")
        return _with_via(op, "loop" if obstacle else "tma_store")

    def can_cp_async(self, op: TileOp) -> bool:
        return (
            self.arch.cp_async
            and self.options.cp_async
            and op.attrs["prefer"] in ("", "cp_async")
            and dtype_of(op["src"].source) == dtype_of(op["dst"].source)
            and op["src"].source not in self.written
            and tile_extents(op["src"]) is not None
        )

    def stage_store(self, op: TileOp) -> list[Any]:
        """A 16-bit accumulator tile goes through shared memory: stmatrix, then one TMA store per box."""
        src, dst = op["src"], op["dst"]
        extents = tile_extents(src)
        if not (self.tma and self.has_mma and bits_of(dst.source) == 16 and extents and len(extents) == 2):
            return []
        if extents[0] % 16 or extents[1] % 16:
            return []
        name, dtype = src.source.name, dtype_of(dst.source)
        stage = tirx.decl_buffer(extents, dtype, f"{name}_stage", scope=SHARED_DYN, layout=None)
        store = _copy(region_of(stage), dst, "tma_store", op)
        if self.transfer_obstacle(TileOp.of(store), set()) or self.store_obstacle(TileOp.of(store)):
            return []
        self.staging.append(tirx.AllocBuffer(stage, span=op.span))
        return [*self.store_matrices(src, region_of(stage), op), store]

    def is_matrix_store(self, op: TileOp) -> bool:
        """A whole accumulator, or operand in registers, that goes into a whole 16-bit tile of shared memory."""
        src, dst = op["src"].source, op["dst"].source
        shape = shape_of(src)
        return (
            self.arch.stmatrix
            and src in self.matrices
            and not op.attrs["coalesced_width"]
            and bits_of(dst) == 16
            and len(shape) == 2
            and shape == shape_of(dst)
            and shape[0] % 16 == shape[1] % 16 == 0
            and _is_whole(op["src"])
            and _is_whole(op["dst"])
        )

    def store_matrices(self, src: Any, dst: Any, op: TileOp) -> list[Any]:
        """The copy by stmatrix, which stores whole fragments of the tile's own type."""
        dtype = dtype_of(dst.source)
        if dtype_of(src.source) == dtype and _is_whole(src):
            return [_copy(src, dst, "stmatrix", op)]
        name = f"{src.source.name}_cast"
        cast = tirx.decl_buffer(tile_extents(src), dtype, name, scope=FRAGMENT, layout=None)
        self.staging.append(tirx.AllocBuffer(cast, span=op.span))
        return [_copy(src, region_of(cast), "loop", op), _copy(region_of(cast), dst, "stmatrix", op)]


def _copies(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy"


def _is_load(op: TileOp) -> bool:
    return op["src"].source.ty.storage_scope == GLOBAL and op["dst"].source.ty.storage_scope in SHARED_SCOPES


def _is_whole(region: Any) -> bool:
    return all(
        const_int(r.min) == 0 and const_int(r.extent) == const_int(s)
        for r, s in zip(region.region, region.source.ty.shape, strict=True)
    )


def _bytes(region: Any) -> int:
    return math.prod(tile_extents(region) or ()) * bits_of(region.source) // 8


def _place(op: TileOp) -> str:
    return f"line {op.span.line}: " if op.span is not None else ""


def _copy(src: Any, dst: Any, via: str, like: TileOp) -> Any:
    return make_tile_op("copy", {"src": src, "dst": dst}, {**like.attrs, "via": via}, like.span)


def _with_via(op: TileOp, via: str) -> Any:
    return _copy(op["src"], op["dst"], via, op)
