# SPDX-License-Identifier: Apache-2.0
"""Turns scheduled tile code into per-thread device code on flat arrays.

Before:  alloc As (4, 128, 64) shared.dyn {OFFSET, LAYOUT}; alloc acc (128, 128) local.fragment {LAYOUT};
         gemm(As[s], .., acc)
After:   arena = alloc(bytes, uint8); As = view(arena, OFFSET); acc = local[64]; wgmma_desc ..; wgmma_ss(acc, ..)

Requires: level 3 with arena offsets and barriers.
Ensures:  level 4: one shared.dyn arena with views, local arrays, device ops and plain TIR only; tensor maps are
          defined in front of the launch.
Does not: choose anything: every choice was made by a plan_ or infer_ pass.

One lowering function an op: `lower/`. LOWERINGS is the dispatch table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.analysis.views import base_of
from tilelang.ir.attrs import (
    BARRIER_SCOPE,
    EXTENT,
    FRAGMENT,
    LAYOUT,
    LOCAL,
    OFFSET,
    PARALLEL,
    ROLE,
    SHARED_DYN,
    SHARED_SCOPES,
    VAR,
)
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import (
    Kernel,
    as_list,
    as_stmt,
    bodies,
    buffers_in,
    const_int,
    dtype_of,
    kernel_of,
    shape_of,
    substitute,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.ir.walk import vars_in, with_span
from tilelang.layout import loads as load_layout
from tilelang.layout import row_major
from tilelang.support.errors import InternalError
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Arch
from tilelang.transform.errors import SharedMemoryExceeded
from tilelang.transform.group_barriers import GroupBarriers, block_barrier
from tilelang.transform.lower.bulk_copy import (
    TensorMaps,
    lower_tma_copy_in,
    lower_tma_copy_out,
    lower_tma_load,
    lower_tma_store,
)
from tilelang.transform.lower.cluster_copy import lower_cluster_copy
from tilelang.transform.lower.context import LowerContext, is_fragment, relative
from tilelang.transform.lower.cumulate import lower_cumulate
from tilelang.transform.lower.fast_math import lower_math
from tilelang.transform.lower.gemm_fma import lower_gemm_fma
from tilelang.transform.lower.gemm_mma import lower_gemm_mma
from tilelang.transform.lower.gemm_wgmma import lower_gemm_wgmma, lower_wait_gemm
from tilelang.transform.lower.matrix_store import lower_matrix_store
from tilelang.transform.lower.parallel import lower_parallel
from tilelang.transform.lower.reduce import lower_any_row, lower_combine, lower_reduce
from tilelang.transform.lower.scalar import lower_expression, lower_scalar
from tilelang.transform.lower.share_registers import shared_registers
from tilelang.transform.lower.spans import placed
from tilelang.transform.lower.store_tile import lower_store_tile
from tilelang.transform.lower.turns import lower_turn
from tilelang.transform.mark_hand_written import is_hand_written
from tilelang.transform.plan_arena import arena_bytes, buffer_bytes

__all__ = ["lower_tile_ops"]

ARENA_ALIGN = 1024
WARP = 32


def lower_tile_ops(func: Any, arch: Arch, options: CompileOptions | None = None) -> Any:
    """The level-4 function. Raises SharedMemoryExceeded when the arena does not fit a block of `arch`."""
    chosen = options or CompileOptions()

    def visit(stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            kernel = kernel_of(stmt)
            if kernel is not None:
                out += [lower_math(s, chosen.fast_math) for s in _Lowerer(kernel, arch, chosen).run()]
            else:
                inner = bodies(stmt)
                out.append(with_bodies(stmt, [visit(b) for b in inner]) if inner else stmt)
        return out

    return func.with_body(as_stmt(visit(as_list(func.body))))


@dataclass
class _Placement:
    """Where the buffers of a kernel live at level 4."""

    layouts: dict[Any, Any] = field(default_factory=dict)
    registers: dict[Any, Any] = field(default_factory=dict)
    shared: dict[Any, Any] = field(default_factory=dict)
    offsets: dict[Any, int] = field(default_factory=dict)
    renamed: dict[Any, Any] = field(default_factory=dict)  # scalars and barriers, whose shape stays


class _Lowerer:
    def __init__(self, kernel: Kernel, arch: Arch, options: CompileOptions) -> None:
        self.kernel, self.arch, self.options = kernel, arch, options
        self.maps = TensorMaps()
        self.place = _Placement()
        self.allocs = [s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer)]
        for alloc in self.allocs:
            self.place_buffer(alloc)
        self.tenants = shared_registers(kernel)
        for buffer, home in self.tenants.items():
            self.place.registers[buffer] = self.place.registers[home]
        for view in [s for s in walk_list(kernel.body) if isinstance(s, tirx.DeclBuffer)]:
            self.place_view(view)

    def place_buffer(self, alloc: Any) -> None:
        buffer, place = alloc.buffer, self.place
        scope, text = buffer.ty.storage_scope, alloc.annotations.get(LAYOUT)
        if scope == FRAGMENT:
            layout = place.layouts[buffer] = load_layout(str(text))
            place.registers[buffer] = _buffer((layout.span("reg"),), buffer, LOCAL)
        elif scope in SHARED_SCOPES:
            shape = shape_of(buffer)
            place.layouts[buffer] = load_layout(str(text)) if text is not None else row_major(shape)
            place.shared[buffer] = _buffer((buffer_bytes(alloc) * 8 // bits_of(buffer),), buffer, SHARED_DYN)
            place.offsets[place.shared[buffer]] = int(alloc.annotations[OFFSET])
        elif scope == BARRIER_SCOPE:
            place.renamed[buffer] = _buffer(shape_of(buffer), buffer, SHARED_DYN)
            place.offsets[place.renamed[buffer]] = int(alloc.annotations[OFFSET])
        elif scope == VAR:
            place.renamed[buffer] = _buffer(shape_of(buffer), buffer, LOCAL)

    def place_view(self, decl: Any) -> None:
        """A view lies where its base does; elements of equal width keep their place."""
        view, base, place = decl.buffer, base_of(decl), self.place
        if base is None or base not in place.layouts:
            return
        layout, same = place.layouts[base], bits_of(view) == bits_of(base)
        place.layouts[view] = layout.reshape(shape_of(view)) if same else row_major(shape_of(view))
        if base in place.registers:
            flat = place.registers[base]
            place.registers[view] = flat if dtype_of(view) == dtype_of(base) else _buffer(shape_of(flat), view, LOCAL)
            return
        if not same and not layout.canonical == row_major(layout.shape).canonical:
            raise InternalError(f"{view.name} looks at {base.name}, whose rows are not in order", span=decl.span)
        flat = place.shared[base]
        count = shape_of(flat)[0] * bits_of(base) // bits_of(view)
        place.shared[view] = _buffer((count,), view, SHARED_DYN)
        place.offsets[place.shared[view]] = place.offsets[flat]

    # -- the whole ---------------------------------------------------------------------------------
    def run(self) -> list[Any]:
        self.scratch: list[Any] = []
        self.free_scratch: dict[Any, Any] = {}
        self.groups = ThreadGroups(self.kernel)
        self.barriers = GroupBarriers(self.kernel)
        self.group: Group | None = self.groups.whole
        ctx = self.context(self.groups.whole, lambda: block_barrier(None))
        body = self.lower(self.kernel.body, ctx)
        arena, total = self.arena()
        names = {old: self.place.renamed.get(new, new) for old, new in self.place.renamed.items()}
        body = [substitute(s, names) for s in body]
        kernel = self.kernel.with_body([*arena, *body])
        self.check_fit(total)
        return [*self.maps.statements, kernel.stmt()]

    def context(self, group: Group, sync: Callable[[], Any]) -> LowerContext:
        """What the threads of `group` (neighbours) lower their statements with: they are numbered from 0."""
        low, thread = group.low, self.kernel.linear_thread()
        ctx = LowerContext(
            self.arch,
            thread - low if low else thread,
            group.count,
            {b: relative(layout, low) for b, layout in self.place.layouts.items()},
            self.place.registers,
            self.place.shared,
            sync=sync,
            allocs=self.scratch,
            exact=not self.options.fast_math,
            free=self.free_scratch,
            first=low,
        )
        flat = self.kernel.threads == const_int(self.kernel.extent("threadIdx.x"))
        for iv, extent in self.kernel.axes:
            if flat and iv.thread_tag == "threadIdx.x":
                ctx.analyzer.bind(iv.var, ir.Range.from_min_extent(low, group.count))
            else:
                ctx.within(iv.var, extent)
        return ctx

    def inner_context(self, group: Group | None, outer: Group | None, ctx: LowerContext) -> LowerContext:
        """The context of a branch that `group` takes, inside code of `outer`."""
        if group is None or group == outer or group.range is None:
            return ctx
        inner = self.context(group, lambda: self.barriers.barrier(group))
        inner.extents.update(ctx.extents)
        return inner

    def arena(self) -> tuple[list[Any], int]:
        """The arena, a view for every shared buffer, and its bytes. Scratch of single statements comes last."""
        total = arena_bytes(self.allocs)
        for alloc in self.scratch:
            total = -(-total // 128) * 128
            self.place.offsets[alloc.buffer] = total
            total += buffer_bytes(alloc)
        if not self.place.offsets:
            return [], 0
        smem = tirx.decl_buffer((total,), "uint8", "smem", scope=SHARED_DYN, data_alignment=ARENA_ALIGN, layout=None)
        out: list[Any] = [tirx.AllocBuffer(smem)]
        for flat, offset in self.place.offsets.items():
            view = tirx.decl_buffer(
                flat.ty.shape,
                dtype_of(flat),
                flat.name,
                elem_offset=offset * 8 // bits_of(flat),
                scope=SHARED_DYN,
                layout=None,
            )
            self.place.renamed[flat] = view
            out.append(tirx.DeclBuffer(view, data=smem.data))
        return out, total

    def check_fit(self, total: int) -> None:
        limit = self.arch.smem_bytes_per_block
        if total > limit:
            lines = [
                f"  {a.buffer.name} {tuple(shape_of(a.buffer))} {dtype_of(a.buffer)}: {buffer_bytes(a)} bytes "
                f"at {int(a.annotations[OFFSET])}"
                for a in self.allocs
                if OFFSET in a.annotations
            ]
            spans = [a.span for a in self.allocs if OFFSET in a.annotations and a.span is not None]
            raise SharedMemoryExceeded(
                span=spans[0] if spans else None,
                needed=total,
                limit=limit,
                arch=self.arch.name,
                arithmetic="\n".join(lines),
            )

    # -- statements ----------------------------------------------------------------------------------
    def lower(self, stmts: list[Any], ctx: LowerContext) -> list[Any]:
        out: list[Any] = []
        start = self.group
        for stmt in stmts:
            out += [with_span(s, stmt.span) for s in self.lower_stmt(stmt, ctx)]
            if bodies(stmt):
                left = self.groups.after(stmt, self.group)
                ctx, self.group = self.inner_context(left, self.group, ctx), left
        self.group = start
        return out

    def lower_bodies(self, stmt: Any, ctx: LowerContext) -> list[list[Any]]:
        """The bodies of a compound statement, each by the threads that take it."""
        outer, out = self.group, []
        for body, group in zip(bodies(stmt), self.groups.inside(stmt, outer), strict=True):
            inner, self.group = self.inner_context(group, outer, ctx), group
            out.append(self.lower(body, inner))
            self.group = outer
            ctx.unroll |= inner.unroll
        return out

    def lower_stmt(self, stmt: Any, ctx: LowerContext) -> list[Any]:
        ctx.vectors = self.options.vectorize
        ctx.trusted = not self.options.safe_memory_access and is_hand_written(stmt)
        op = TileOp.from_stmt(stmt)
        if op is not None:
            return placed(self.lower_op(op, ctx), op.span)
        if isinstance(stmt, tirx.AllocBuffer):
            return self.lower_alloc(stmt)
        if isinstance(stmt, tirx.DeclBuffer) and stmt.buffer in self.place.layouts:
            return self.lower_view(stmt)
        if isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations:
            return placed(as_list(lower_parallel(stmt, ctx)), stmt.span)
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE:
            return self.lower_role(stmt, ctx)
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == EXTENT:
            ctx.within(stmt.node, stmt.value)
            return self.lower(bodies(stmt)[0], ctx)
        inner = bodies(stmt)
        if not inner or not (any(_is_tile_code(s) for s in walk_list([stmt])) or self.narrows(stmt)):
            return placed(as_list(lower_scalar(stmt, ctx)), stmt.span)
        if isinstance(stmt, tirx.For):
            return [self.lower_loop(stmt, ctx)]
        arms = self.lower_bodies(stmt, ctx)
        if isinstance(stmt, tirx.IfThenElse):
            return [*(branch := self.by_warps(stmt))[:-1], with_bodies(_lower_head(branch[-1], ctx), arms)]
        return [with_bodies(_lower_head(stmt, ctx), arms)]

    def narrows(self, stmt: Any) -> bool:
        """Does a branch of some threads alone use elements of fragments? It is enough that these threads hold them."""
        branches = [s for s in walk_list([stmt]) if isinstance(s, tirx.IfThenElse)]
        return any(
            any(group not in (None, self.group) for group in self.groups.inside(branch, self.group))
            and any(is_fragment(b) for b in buffers_in(branch))
            for branch in branches
        )

    def by_warps(self, stmt: Any) -> list[Any]:
        """A branch that whole warps take together, behind the definition of its warp as a uniform value: code in it may
        use uniform registers then (descriptors of wgmma else move there one by one)."""
        thread, whole = self.kernel.axis("threadIdx.x"), self.group
        if whole is None or not whole.whole_warps or self.kernel.axis("threadIdx.y") is not None:
            return [stmt]
        groups = self.groups.inside(stmt, whole)
        if thread not in vars_in(stmt.condition) or any(g is None or not g.whole_warps for g in groups):
            return [stmt]
        warp = tirx.Var("warp", "int32")
        first = tirx.Bind(warp, device_op("uniform", tirx.truncdiv(thread, tirx.const(WARP, "int32"))))
        condition = substitute(stmt.condition, {thread: warp * WARP})
        return [first, tirx.IfThenElse(condition, stmt.then_case, stmt.else_case, span=stmt.span)]

    def lower_loop(self, loop: Any, ctx: LowerContext) -> Any:
        """A loop around tile code; it stays rolled unless the program unrolls it."""
        extent = const_int(loop.extent)
        if const_int(loop.min) == 0 and extent is not None:
            ctx.extents[loop.loop_var] = extent
        if const_int(loop.min) == 0:
            ctx.within(loop.loop_var, loop.extent)
        low, extent = lower_expression(loop.min, ctx), lower_expression(loop.extent, ctx)
        (body,) = self.lower_bodies(loop, ctx)
        notes = {k: v for k, v in dict(loop.annotations).items() if not str(k).startswith("tl.")}
        if loop.kind == tirx.ForKind.SERIAL:
            notes["pragma_unroll" if loop.loop_var in ctx.unroll else "disable_unroll"] = True
        return tirx.For(
            loop.loop_var,
            low,
            extent,
            loop.kind,
            as_stmt(body),
            loop.thread_binding,
            notes,
            loop.step,
            loop.span,
        )

    def lower_role(self, stmt: Any, ctx: LowerContext) -> list[Any]:
        consumers = int(stmt.node)
        role = str(stmt.value.value)
        if role != "consumer" or not consumers:
            return self.lower(bodies(stmt)[0], ctx)
        outer, self.group = self.group, Group.of(range(consumers), self.groups.size)
        inner = self.context(self.group, lambda: block_barrier(consumers))
        inner.extents.update(ctx.extents)
        out = self.lower(bodies(stmt)[0], inner)
        self.group = outer
        return out

    def lower_alloc(self, stmt: Any) -> list[Any]:
        buffer = stmt.buffer
        if buffer in self.tenants:
            return []
        if buffer in self.place.registers:
            return [tirx.AllocBuffer(self.place.registers[buffer], span=stmt.span)]
        if buffer in self.place.shared or buffer.ty.storage_scope == BARRIER_SCOPE:
            return []
        return [tirx.AllocBuffer(buffer, span=stmt.span)]

    def lower_view(self, stmt: Any) -> list[Any]:
        """Registers seen as another type are a view of their own; all other views are places in known arrays."""
        if stmt.buffer not in self.place.registers:
            return []
        mine, base = self.place.registers[stmt.buffer], self.place.registers[base_of(stmt)]
        return [] if mine.same_as(base) else [tirx.DeclBuffer(mine, data=base.data, span=stmt.span)]

    def lower_op(self, op: TileOp, ctx: LowerContext) -> list[Any]:
        kind = op.attrs.get("inst") or op.attrs.get("via") or ""
        return as_list(as_stmt(LOWERINGS[op.name, kind](op, ctx, self.maps)))


def _buffer(shape: tuple[int, ...], like: Any, scope: str) -> Any:
    return tirx.decl_buffer(shape, dtype_of(like), like.name, scope=scope, layout=None)


def _is_tile_code(stmt: Any) -> bool:
    return (
        TileOp.from_stmt(stmt) is not None
        or isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer)
        or (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations)
        or (isinstance(stmt, tirx.AttrStmt) and stmt.attr_key in (ROLE, EXTENT))
    )


def _lower_head(stmt: Any, ctx: LowerContext) -> Any:
    """The statement with its condition translated."""
    if isinstance(stmt, tirx.IfThenElse):
        condition = lower_expression(stmt.condition, ctx)
        return tirx.IfThenElse(condition, stmt.then_case, stmt.else_case, span=stmt.span)
    if isinstance(stmt, tirx.While):
        return tirx.While(lower_expression(stmt.condition, ctx), stmt.body, span=stmt.span)
    return stmt


def _lower_acquire(op: TileOp, ctx: LowerContext) -> list[Any]:
    return [device_op("mbar_wait", tirx.address_of(op["barrier"]), op["parity"], span=op.span)]


def _lower_release(op: TileOp, ctx: LowerContext) -> list[Any]:
    """Lane 0 arrives for its warp, once all lanes are past their reads; lane n in block n of the cluster."""
    meet = [] if op.attrs["converged"] else [device_op("syncwarp")]
    lane, blocks = tirx.truncmod(ctx.thread, tirx.const(32, "int32")), op.attrs["blocks"]
    bar = tirx.address_of(op["barrier"])
    if blocks > 1:
        arrive = device_op("mbar_arrive_remote", bar, lane, span=op.span)
        return [*meet, tirx.IfThenElse(lane < blocks, arrive, None, span=op.span)]
    first = tirx.EQ(lane, tirx.const(0, "int32"))
    return [
        *meet,
        tirx.IfThenElse(first, device_op("mbar_arrive", bar, span=op.span), None, span=op.span),
    ]


def _plain(fn: Callable[[TileOp, LowerContext], Any]) -> Callable[[TileOp, LowerContext, TensorMaps], list[Any]]:
    def call(op: TileOp, ctx: LowerContext, maps: TensorMaps) -> list[Any]:
        got = fn(op, ctx)
        return got if isinstance(got, list) else [got]

    return call


LOWERINGS: dict[tuple[str, str], Callable[[TileOp, LowerContext, TensorMaps], list[Any]]] = {
    ("gemm", "wgmma"): _plain(lower_gemm_wgmma),
    ("gemm", "mma"): _plain(lower_gemm_mma),
    ("gemm", "fma"): _plain(lower_gemm_fma),
    ("wait_gemm", ""): _plain(lower_wait_gemm),
    ("reduce", ""): _plain(lower_reduce),
    ("any_row", ""): _plain(lower_any_row),
    ("combine", ""): _plain(lower_combine),
    ("cumulate", ""): _plain(lower_cumulate),
    ("copy", "stmatrix"): _plain(lower_matrix_store),
    ("copy", "tma_store"): lambda op, ctx, maps: [lower_tma_store(op, ctx, maps)],
    ("store_tile", ""): lower_store_tile,
    ("tma_load", ""): lower_tma_load,
    ("tma_copy_in", ""): lower_tma_copy_in,
    ("tma_copy_out", ""): lower_tma_copy_out,
    ("tma_copy_cluster", ""): _plain(lower_cluster_copy),
    ("acquire", ""): _plain(_lower_acquire),
    ("release", ""): _plain(_lower_release),
    ("turn_start", ""): _plain(lower_turn),
    ("turn_wait", ""): _plain(lower_turn),
    ("turn_pass", ""): _plain(lower_turn),
    ("settle", ""): _plain(lower_turn),
    ("use_swizzle", ""): lambda op, ctx, maps: [make_tile_op("use_swizzle", {}, op.attrs, op.span)],  # rasterize_blocks
    ("order_blocks", ""): lambda op, ctx, maps: [make_tile_op("order_blocks", op.operands, op.attrs, op.span)],
}
