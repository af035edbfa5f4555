# SPDX-License-Identifier: Apache-2.0
"""Runs cp.async copies of a pipelined loop `stages - 1` iterations ahead of their use.

Before:  for k in [0, n): As[..] = A[k] (async); use(As)
After:   for s in [0, stages - 1): if s < n: As[s] = A[s]; commit
         for k in [0, n): wait(stages - 2); barrier; if k + stages - 1 < n: As[(k + stages - 1) % stages] = A[..];
         commit; use(As[k % stages])

Requires: level 2; async copies are T.Parallel nests marked ASYNC_COPY.
Ensures:  such copies have versions (RING: insert_sync leaves their writes to the commit groups and the barrier
          here); those that cannot run ahead lose the mark and stay synchronous.
          A buffer runs ahead in all loops that load it or in none.
Does not: touch loops whose loads a producer warp took.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.analysis.effects import Touch, touches
from tilelang.analysis.loads import Site, load_sites, run_ahead_obstacle
from tilelang.ir.attrs import ASYNC_COPY, RING, SHARED_SCOPES
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import (
    Kernel,
    as_stmt,
    bodies,
    const_int,
    dtype_of,
    fresh,
    map_kernels,
    pipeline_stages,
    rebuild,
    shape_of,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import make_tile_op
from tilelang.ir.walk import collect
from tilelang.transform.versions import read_version, write_version

__all__ = ["pipeline_async_copies"]


def pipeline_async_copies(func: Any) -> Any:
    """The function with software-pipelined cp.async copies."""
    return map_kernels(func, lambda kernel: _Pipeliner(kernel).run())


class _Pipeliner:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.versions: dict[Any, Any] = {}
        self.ahead: set[Any] = set()
        sites: dict[Any, list[Site]] = {}  # of every buffer that async copies fill
        for site in load_sites(kernel.body):
            if _is_async(site.stmt):
                sites.setdefault(_ends(site.stmt)[1], []).append(site)
        for dst, loads in sites.items():
            if not self.may_run_ahead(dst, loads):
                continue
            self.ahead.update(site.stmt for site in loads)
            shape = (max(pipeline_stages(site.loop) for site in loads), *shape_of(dst))
            self.versions[dst] = tirx.decl_buffer(
                shape, dtype_of(dst), dst.name, scope=dst.ty.storage_scope, layout=None
            )

    def may_run_ahead(self, dst: Any, loads: list[Site]) -> bool:
        """All loads of a buffer run ahead, or none: it has versions everywhere. A pass of a loop fills one of them."""
        loops = [site.loop for site in loads]
        if len(set(loops)) < len(loops):
            return False
        return all(
            site.loop is not None
            and site.loop.step is None
            and pipeline_stages(site.loop) > 1
            and run_ahead_obstacle(site, dst, _ends(site.stmt)[0], self.kernel) is None
            for site in loads
        )

    def run(self) -> Kernel:
        body = self.walk(self.kernel.body)
        return self.kernel.with_body(rebuild(body, self.finish))

    def finish(self, stmt: Any) -> Any:
        if isinstance(stmt, tirx.AllocBuffer) and stmt.buffer in self.versions:
            return tirx.AllocBuffer(self.versions[stmt.buffer], {**dict(stmt.annotations), RING: 1}, span=stmt.span)
        return stmt

    def walk(self, stmts: list[Any], repeats: bool = False) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            if isinstance(stmt, tirx.For) and any(s in self.ahead for s in bodies(stmt)[0]):
                out += self.pipeline(stmt, repeats)
            elif _is_async(stmt):
                out.append(_synchronous(stmt))
            else:
                inner, again = bodies(stmt), repeats or isinstance(stmt, tirx.For | tirx.While)
                out.append(with_bodies(stmt, [self.walk(b, again) for b in inner]) if inner else stmt)
        return out

    def pipeline(self, loop: Any, repeats: bool) -> list[Any]:
        stages, k = pipeline_stages(loop), loop.loop_var
        (body,) = bodies(loop)
        loads = [s for s in body if s in self.ahead]
        binds = [s for s in body if isinstance(s, tirx.Bind)]
        rest = self.walk([s for s in body if s not in self.ahead], repeats=True)
        mine = {_ends(s)[1]: self.versions[_ends(s)[1]] for s in loads}
        count = tirx.const(stages, "int32")

        def fetch(iteration: Any, slot: Any) -> Any:
            code = fresh([*binds, *loads], {k: loop.min + iteration})
            return tirx.IfThenElse(iteration < loop.extent, as_stmt([write_version(s, mine, slot) for s in code]), None)

        step = k - loop.min if const_int(loop.min) != 0 else k
        head: list[Any] = []
        for s in range(stages - 1):
            head += [fetch(tirx.const(s, "int32"), tirx.const(s, "int32")), device_op("cp_async_commit")]
        ahead = step + (stages - 1)
        # wgmma and bulk stores read through the async proxy: every thread publishes what its own copies wrote
        by_proxy = any(_reads_by_proxy(t) for s in rest for t in touches(s))
        fence = [device_op("fence_proxy_async")] if by_proxy else []
        inside = [
            device_op("cp_async_wait", pending=stages - 2),
            *fence,
            make_tile_op("sync_threads", {}, {"inserted": True}, loop.span),
            fetch(ahead, tirx.floormod(ahead, count)),
            device_op("cp_async_commit"),
            *(read_version(s, mine, tirx.floormod(step, count)) for s in rest),
        ]
        # The last iteration has waited for the last copy. Who fills the slots again must know that they have been read.
        repeats = repeats or any(_ends(s)[1] in mine for s in self.ahead if s not in loads)
        tail = [make_tile_op("sync_threads", {}, {"inserted": True}, loop.span)] if repeats else []
        return [*head, with_bodies(loop, [inside]), *tail]


def _is_async(stmt: Any) -> bool:
    return isinstance(stmt, tirx.For) and int(stmt.annotations.get(ASYNC_COPY, 0)) == 1


def _reads_by_proxy(touch: Touch) -> bool:
    return touch.asynchronous and not touch.write and touch.buffer.ty.storage_scope in SHARED_SCOPES


def _ends(nest: Any) -> tuple[Any, Any]:
    """(source, destination) of a copy nest; its indices may be loaded as well."""
    (store,) = (s for s in walk_list([nest]) if isinstance(s, tirx.BufferStore))
    return collect(store.value, ir.TensorLoad)[0].source, store.buffer


def _synchronous(nest: Any) -> Any:
    notes = {k: v for k, v in dict(nest.annotations).items() if k != ASYNC_COPY}
    return tirx.For(
        nest.loop_var, nest.min, nest.extent, nest.kind, nest.body, nest.thread_binding, notes, nest.step, nest.span
    )
