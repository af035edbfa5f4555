# SPDX-License-Identifier: Apache-2.0
"""The compiler, top to bottom: every pass in order, with the reason it stands there.

`lower(func, arch)` takes a tile program to a device function. The levels between are described in
docs/decisions/001-levels-of-the-ir.md; `stop_after` names the one to stop at. Passes are plain functions PrimFunc
-> PrimFunc; what they need beside the function is in `Context`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilelang.ir import spec
from tilelang.ir.carry_nibbles import carry_nibbles
from tilelang.ir.drop_empty import drop_empty
from tilelang.ir.widen_float8 import widen_float8
from tilelang.support.env import env
from tilelang.support.faults import compiler_step
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Arch, arch_of
from tilelang.transform.adjoin_groups import adjoin_groups
from tilelang.transform.arrange_columns import arrange_columns
from tilelang.transform.ask_ahead import ask_ahead
from tilelang.transform.check_arch import check_arch
from tilelang.transform.check_protocol import check_protocol
from tilelang.transform.compute_ahead import compute_ahead
from tilelang.transform.copy_by_thread import copy_by_thread
from tilelang.transform.defer_sums import defer_sums
from tilelang.transform.drop_register_requests import drop_register_requests
from tilelang.transform.elect_updates import elect_updates
from tilelang.transform.expand_elementwise import expand_elementwise
from tilelang.transform.fold_clear import fold_clear
from tilelang.transform.fold_maxima import fold_maxima
from tilelang.transform.form_clusters import form_clusters
from tilelang.transform.hoist_allocations import hoist_allocations
from tilelang.transform.hoist_invariants import hoist_invariants
from tilelang.transform.infer_layouts import infer_layouts
from tilelang.transform.init_barriers import init_barriers
from tilelang.transform.insert_sync import insert_sync
from tilelang.transform.interleave_operands import interleave_operands
from tilelang.transform.keep_operands import keep_operands
from tilelang.transform.lazy_rescale import lazy_rescale
from tilelang.transform.legalize_extents import legalize_extents
from tilelang.transform.lower_tile_ops import lower_tile_ops
from tilelang.transform.make_persistent import make_persistent
from tilelang.transform.mark_hand_written import mark_hand_written
from tilelang.transform.narrow_groups import narrow_groups
from tilelang.transform.order_statements import order_statements
from tilelang.transform.overlap_gemms import overlap_gemms
from tilelang.transform.overlap_launches import overlap_launches
from tilelang.transform.peel_masks import peel_masks
from tilelang.transform.pipeline_async_copies import pipeline_async_copies
from tilelang.transform.plan_arena import plan_arena
from tilelang.transform.plan_block_order import plan_block_order
from tilelang.transform.plan_copies import plan_copies
from tilelang.transform.plan_eviction import plan_eviction
from tilelang.transform.plan_gemms import plan_gemms
from tilelang.transform.plan_raster import plan_raster
from tilelang.transform.plan_stages import plan_stages
from tilelang.transform.rasterize_blocks import rasterize_blocks
from tilelang.transform.relax_quotients import relax_quotients
from tilelang.transform.schedule_gemms import schedule_gemms
from tilelang.transform.specialize_warps import specialize_warps
from tilelang.transform.split_nests import split_nests
from tilelang.transform.store_by_warpgroup import store_by_warpgroup
from tilelang.transform.supply_grid_state import supply_grid_state
from tilelang.transform.take_turns import take_turns
from tilelang.transform.watch_waits import watch_waits

__all__ = ["LEVELS", "PIPELINE", "Context", "Pass", "lower"]

LEVELS = ("tir", "laid-out", "scheduled", "device")


@dataclass
class Context:
    """What passes share besides the function: the machine, the user's options, and what they have to tell."""

    arch: Arch
    options: CompileOptions = field(default_factory=CompileOptions)
    notes: list[str] = field(default_factory=list)  # performance notes, in the order of the passes
    seconds: dict[str, float] = field(default_factory=dict)  # time of each pass
    stages: dict[Any, int] = field(default_factory=dict)  # stages that fit, by function
    shared: dict[Any, int] = field(default_factory=dict)  # bytes of shared memory, by function
    # Sees the function behind every pass, with its level and the pass.
    watch: Callable[[str, Pass, Any], None] | None = None


@dataclass(frozen=True)
class Pass:
    """One step. `run(func, context)` returns the new function; `why` says why it stands where it stands."""

    name: str
    run: Callable[[Any, Context], Any]
    why: str


def _asks_for_hand_written(options: CompileOptions) -> bool:
    """Is anything asked for that concerns the program's own accesses alone."""
    return not (options.sync_threads and options.safe_memory_access)


PIPELINE: dict[str, tuple[Pass, ...]] = {
    "tir": (),
    "laid-out": (
        Pass("drop_empty", lambda f, c: drop_empty(f), "no other pass has to think of tensors without elements"),
        Pass(
            "mark_hand_written",
            lambda f, c: mark_hand_written(f) if _asks_for_hand_written(c.options) else f,
            "while tile statements are no loops",
        ),
        Pass("carry_nibbles", lambda f, c: carry_nibbles(f), "what still has four-bit elements then is refused"),
        Pass(
            "widen_float8", lambda f, c: widen_float8(f), "in front of all that look at the types of sums and products"
        ),
        Pass("check_arch", lambda f, c: check_arch(f, c.arch), "errors name the program's own statements"),
        Pass(
            "drop_register_requests",
            lambda f, c: drop_register_requests(f, c.arch, c.notes),
            "what is left of them decides how copies run",
        ),
        Pass("adjoin_groups", lambda f, c: adjoin_groups(f), "later passes number a group of threads from its first"),
        Pass("copy_by_thread", lambda f, c: copy_by_thread(f), "from here on a copy is what threads make together"),
        Pass("narrow_groups", lambda f, c: narrow_groups(f), "from here on a fragment belongs to one group of threads"),
        Pass("hoist_allocations", lambda f, c: hoist_allocations(f), "from here on a kernel's tiles are one list"),
        Pass("order_statements", lambda f, c: order_statements(f), "while a statement is what the program calls one"),
        Pass(
            "keep_operands",
            lambda f, c: keep_operands(f, c.arch, c.notes) if c.options.wgmma else f,
            "in front of plan_gemms, which swaps the operands of a gemm for one in registers",
        ),
        Pass(
            "plan_gemms",
            lambda f, c: plan_gemms(f, c.arch, c.options.wgmma),
            "the instruction decides which layouts and copies are possible",
        ),
        Pass(
            "plan_raster",
            lambda f, c: plan_raster(f, c.arch, c.options, c.notes),
            "while loads name the block indices they depend on",
        ),
        Pass(
            "plan_block_order",
            lambda f, c: plan_block_order(f, c.arch, c.options, c.notes),
            "while one loop says how long a block runs",
        ),
        Pass("fold_maxima", lambda f, c: fold_maxima(f), "in front of all that look for running softmaxes"),
        Pass("overlap_gemms", lambda f, c: overlap_gemms(f), "a moved gemm has loads of its own"),
        Pass("peel_masks", lambda f, c: peel_masks(f), "after the move: the pipeline runs on through the split"),
        Pass(
            "fold_clear", lambda f, c: fold_clear(f), "while a clear is still one statement; peeled masks leave clears"
        ),
        Pass(
            "plan_copies",
            lambda f, c: plan_copies(f, c.arch, c.options, c.notes),
            "knows which tiles gemms read and write",
        ),
        Pass(
            "plan_eviction",
            lambda f, c: plan_eviction(f, c.arch, c.options.l2_hints),
            "knows what the copy engine loads",
        ),
        Pass("expand_elementwise", lambda f, c: expand_elementwise(f), "layout inference sees one kind of loop"),
        Pass("legalize_extents", lambda f, c: legalize_extents(f), "copies of parts of a tile are nests now"),
        Pass("split_nests", lambda f, c: split_nests(f), "registers and memory are written by different threads"),
        Pass(
            "compute_ahead",
            lambda f, c: compute_ahead(f, c.options.compute_ahead),
            "in front of interleave_operands, which parts what has several boxes",
        ),
        Pass(
            "interleave_operands",
            lambda f, c: interleave_operands(f),
            "nests are what a thread computes; each part has a layout of its own",
        ),
        Pass(
            "relax_quotients",
            lambda f, c: relax_quotients(f, c.options.relaxed_division),
            "copies that round are loops now; no pass has put the kernel into a loop yet",
        ),
        Pass(
            "arrange_columns",
            lambda f, c: arrange_columns(f),
            "all uses of every tile are explicit now, and inference asks which columns are whose",
        ),
        Pass("infer_layouts", lambda f, c: infer_layouts(f, c.arch), "all uses of every tile are explicit now"),
        Pass("defer_sums", lambda f, c: defer_sums(f, c.options.deferred_sums), "layouts say which lanes share a row"),
        Pass(
            "lazy_rescale",
            lambda f, c: lazy_rescale(f, c.options.lazy_rescale, c.notes),
            "behind defer_sums, which knows sums by their whole update",
        ),
    ),
    "scheduled": (
        Pass("make_persistent", make_persistent, "in front of everything that plans rings and shared memory"),
        Pass("form_clusters", form_clusters, "launches that are not persistent keep their block indices"),
        Pass("store_by_warpgroup", store_by_warpgroup, "before plan_stages: its stages have bytes of their own"),
        Pass("plan_stages", plan_stages, "layouts fix the bytes of a stage"),
        Pass("init_barriers", lambda f, c: init_barriers(f), "the kernel's start still is that of all threads"),
        Pass("specialize_warps", lambda f, c: specialize_warps(f, c.arch), "TMA rings and roles"),
        Pass("pipeline_async_copies", lambda f, c: pipeline_async_copies(f), "what the producer did not take"),
        Pass(
            "schedule_gemms",
            lambda f, c: schedule_gemms(f, c.options.carry_gemms, c.options.early_waits),
            "waits go in front of the releases that rings placed",
        ),
        Pass(
            "plan_arena",
            lambda f, c: plan_arena(f, c.options.reuse_shared),
            "versions are known; sharing of bytes makes conflicts",
        ),
        Pass(
            "elect_updates", lambda f, c: elect_updates(f), "roles are known; insert_sync orders one thread with others"
        ),
        Pass(
            "insert_sync",
            lambda f, c: insert_sync(f, c.options.sync_threads, c.notes),
            "sees every access and every overlap",
        ),
        Pass(
            "take_turns",
            lambda f, c: take_turns(f, c.options, c.notes),
            "no barrier of the block may stand where a warpgroup holds the turn",
        ),
        Pass("ask_ahead", lambda f, c: ask_ahead(f, c.options.ask_ahead), "the heads of loops are what they stay"),
    ),
    "device": (
        Pass(
            "lower_tile_ops",
            lambda f, c: lower_tile_ops(f, c.arch, c.options),
            "nothing is left to choose",
        ),
        Pass(
            "supply_grid_state",
            lambda f, c: supply_grid_state(f, c.options.tile_queue),
            "behind make_persistent, whose parameter it may share",
        ),
        Pass("hoist_invariants", lambda f, c: hoist_invariants(f), "lowering has made descriptors explicit"),
        Pass("rasterize_blocks", lambda f, c: rasterize_blocks(f), "until here block indices have known ranges"),
        Pass(
            "overlap_launches",
            lambda f, c: overlap_launches(f, c.arch, c.options.overlap_launches, c.options.early_bytes),
            "what a kernel starts with is all there now",
        ),
        Pass("check_protocol", lambda f, c: check_protocol(f, c.arch), "last: sees what the device will run"),
        Pass("watch_waits", lambda f, c: watch_waits(f, c.options.watchdog), "behind all that knows the plain waits"),
    ),
}


def lower(
    func: Any,
    arch: Arch | str,
    options: CompileOptions | None = None,
    stop_after: str = "device",
    context: Context | None = None,
) -> Any:
    """The function at level `stop_after` (one of LEVELS). `context`, when given, collects notes and times.

    Raises UserError for programs that cannot be compiled, InternalError with the pass's name and a report where a pass
    fails, `ValueError` for an unknown level.
    """
    if stop_after not in LEVELS:
        raise ValueError(f"no level {stop_after!r}; there are {', '.join(LEVELS)}")
    ctx = context or Context(arch_of(arch) if isinstance(arch, str) else arch, options or CompileOptions())
    program = func
    for level in LEVELS[: LEVELS.index(stop_after) + 1]:
        for step in PIPELINE[level]:
            start = time.perf_counter()
            with compiler_step(step.name, {"program": program, f"in front of {step.name}": func}):
                func = step.run(func, ctx)
            ctx.seconds[step.name] = time.perf_counter() - start
            if ctx.options.dump_ir:
                _dump(func, f"{len(ctx.seconds):02d}-{step.name}", ctx.options.dump_ir_dir)
            if ctx.watch is not None:
                ctx.watch(level, step, func)
        if env.verify.get() and level != "tir":  # what the front end writes is checked by its own tests
            with compiler_step(f"the passes to level {level}", {"program": program, level: func}):
                spec.check(func, LEVELS.index(level) + 1, stage=level)
    return func


def _dump(func: Any, name: str, folder: str) -> None:
    """Writes the IR behind a pass to a file of the folder, `dump_ir` where none is named."""
    path = Path(folder or "dump_ir")
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.py").write_text(func.script() + "\n", encoding="utf-8")
