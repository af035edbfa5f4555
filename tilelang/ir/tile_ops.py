# SPDX-License-Identifier: Apache-2.0
"""The tile-op table: what a tile program may say, one row an op.

A tile op is `Evaluate(Call(Op("tl.tile.<name>"), operands, attrs))`. Operands come in the order of the row: a
`TensorRegion` where the row says `Read`, `Write` or `Update`, a scalar expression where it says `Value`. Attributes are
static and live in the call's DictAttrs; what is not given takes the row's default, so every op reads complete.

Passes never take a call apart by position: `TileOp.from_stmt(stmt)` gives named operands, attributes and the span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import TILE_OP_PREFIX

__all__ = ["TILE_OPS", "Access", "TileOp", "TileOpRow", "make_tile_op", "region_of"]


class Access(Enum):
    """How an op uses an operand."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"  # read and written
    VALUE = "value"  # scalar expression


@dataclass(frozen=True)
class TileOpRow:
    """One tile op: operands in call order, static attributes with defaults, meaning in one line."""

    name: str
    operands: Mapping[str, Access]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    doc: str = ""

    @property
    def op_name(self) -> str:
        return TILE_OP_PREFIX + self.name


_R, _W, _U, _V = Access.READ, Access.WRITE, Access.UPDATE, Access.VALUE

_ROWS = (
    TileOpRow(
        "copy",
        {"src": _R, "dst": _W},
        {
            "coalesced_width": 0,  # elements a vector access; 0 = compiler's choice
            "tma": True,  # may the copy engine be used
            "eviction_policy": "",  # "" | evict_normal | evict_first | evict_last
            "prefer": "",  # "" | tma | cp_async | sync
            "add": False,  # dst += src from shared memory to a tensor, atomic for each element
            "blocks": 1,  # fact of form_clusters: blocks of a cluster that share the work of loading the tile
            "pairs": 1,  # fact of arrange_columns: the rows of the tile are arranged in so many parts
            "slots": 0,  # fact of plan_stages: of the ring that it loads into; 0: as many as the loop has stages
            "via": "",  # fact of plan_copies: "" | loop | tma_load | tma_store | cp_async | stmatrix
        },
        "dst = cast(src); out-of-range global elements read as 0 and are not stored. "
        "Regions have the same extents after dropping unit ones.",
    ),
    TileOpRow("fill", {"dst": _W, "value": _V}, {}, "every element of dst = cast(value)"),
    TileOpRow(
        "gemm",
        {"a": _R, "b": _R, "c": _U, "clear": _V},
        {
            "trans_a": False,
            "trans_b": False,
            "trans_c": False,  # fact of plan_gemms: operands are swapped, the op computes the transpose of c
            "pairs": 1,  # fact of arrange_columns: columns of c and of op(b) are arranged in so many parts
            "policy": "square",  # square | full_row | full_col
            "inst": "",  # fact of plan_gemms: "" | wgmma | mma | fma
            "warps_m": 0,  # fact: warps (mma) or warpgroups (wgmma) along M
            "warps_n": 0,
            "sync": True,  # fact of schedule_gemms: False = issued only, a wait_gemm retires it
            "explicit": False,  # T.wgmma_gemm: on wgmma or not at all, and the program waits for it
            "rewritten": False,  # fact of schedule_gemms: other code has written the accumulator since its last gemm
        },
        "op(c) = (clear ? 0 : op(c)) + op(a) @ op(b); a (M, K), b (K, N), c (M, N); `clear` is a bool expression. "
        "Accumulates in c's dtype.",
    ),
    TileOpRow(
        "reduce",
        {"src": _R, "dst": _U},
        {
            "kind": "sum",  # sum | max | min | abssum | absmax | bitand | bitor | bitxor
            "dim": -1,  # reduced dimension of src
            "clear": True,  # False: fold the old dst in
            "nan_propagate": False,
            "partial": False,  # fact of defer_sums: each lane keeps its own part of a row, a `combine` follows
        },
        "dst = fold of src over dim; dst has src's extents without dim (or with 1 there)",
    ),
    TileOpRow(
        "combine",
        {"dst": _U},
        {},
        "every lane that holds an element of dst has a part of it (reduce with `partial`); afterwards all have the sum",
    ),
    TileOpRow(
        "any_row",
        {"src": _R, "dst": _W},
        {},
        "dst (a scalar of the thread) = 1 if an element of src that a lane of the warp holds is not 0, else 0: the "
        "same in a warp, not in a block",
    ),
    TileOpRow(
        "cumulate",
        {"src": _R, "dst": _W},
        {"kind": "sum", "dim": 0, "reverse": False},  # sum | max
        "inclusive scan of src along dim",
    ),
    TileOpRow(
        "annotate_layout",
        {"buffer": _R},
        {"layout": ""},
        "pins the layout of a buffer: `layout` is tilelang.layout text (Layout.dumps())",
    ),
    TileOpRow("use_swizzle", {}, {"panel": 0, "order": "row"}, "rasterise the grid in panels for L2 reuse"),
    TileOpRow(
        "order_blocks",
        {"group": _V},
        {"axis": "x", "descending": True},
        "start blocks by their index on `axis`, `group` of those that differ in the other indices together",
    ),
    # Level 3, written by the scheduling passes.
    TileOpRow(
        "tma_load",
        {"src": _R, "dst": _W, "barrier": _V, "rank": _V},
        {"eviction_policy": "", "blocks": 1, "pairs": 1, "first_row": 0, "rows": 0},
        "one thread starts the transfer; its bytes complete on the mbarrier element `barrier`. With `blocks` > 1 the "
        "block of rank `rank` in its cluster loads its part of the tile into all of them. `rows` from "
        "`first_row` on are loaded, 0: all",
    ),
    TileOpRow(
        "acquire",
        {"barrier": _V, "parity": _V},
        {"buffers": ""},
        "wait until the loads of `buffers` (names, comma separated) have landed",
    ),
    TileOpRow(
        "release",
        {"barrier": _V},
        {"buffers": "", "blocks": 1, "converged": False},
        "one arrival a warp, in each of `blocks` blocks of the cluster: this warp no longer reads `buffers`. "
        "`converged`: all its lanes have waited for the last reads together",
    ),
    TileOpRow(
        "wait_gemm",
        {},
        {"pending": 0, "buffers": ""},
        "wait until at most `pending` issued gemms are open; `buffers` names the fragments they held",
    ),
    TileOpRow(
        "store_tile",
        {"src": _R, "stage": _W, "dst": _W},
        {"slots": 2, "repeats": True},  # column chunks a warpgroup keeps in flight; is it in a loop?
        "dst = src, a 16-bit fragment, through shared memory: every warpgroup stages its own rows, chunk by chunk, "
        "in its own slots of `stage` (warpgroup * slots, rows, columns of a chunk) and stores them by TMA",
    ),
    TileOpRow(
        "request_tile",
        {"dst": _W, "queue": _U, "first": _V, "last": _V},
        {},
        "dst (a scalar) = `first` + the requests to `queue` before this one; after request `last` it is 0 again",
    ),
    TileOpRow(
        "publish_tile",
        {"src": _V, "dst": _W},
        {"blocks": 1},
        "dst (shared, one element) = src (a scalar): what the producer tells the consumers",
    ),
    TileOpRow("turn_start", {}, {}, "before any turn_wait: warpgroup 0 has the turn"),
    TileOpRow("turn_wait", {}, {}, "wait until the warpgroup before this one has passed the turn on"),
    TileOpRow(
        "turn_pass", {}, {"after": ""}, "hand the turn to the next warpgroup, once fragment `after` (a name) is known"
    ),
    TileOpRow(
        "settle",
        {},
        {"after": ""},
        "what stands in front is issued before what follows: once fragment `after` (a name; none: that of the last "
        "turn_pass or settle) is known",
    ),
    TileOpRow(
        "sync_threads",
        {},
        {"inserted": False},
        "barrier of the threads that run it; `inserted` by a pass, not by the user",
    ),
    # Transfers that the program waits for itself.
    TileOpRow(
        "tma_copy_in",
        {"src": _R, "dst": _W, "barrier": _V},
        {"eviction_policy": "", "leader_scope": 0, "mask": 0},
        "one thread (of every `leader_scope`, 0 = of all) announces the bytes to `barrier` and starts the transfer. Of "
        "the blocks in `mask` (bits by rank in the cluster; 0: none) the first loads the tile into all of them",
    ),
    TileOpRow(
        "tma_copy_cluster",
        {"src": _R, "dst": _W, "barrier": _V, "block": _V},
        {},
        "one thread sends src to the place of dst in block `block` of the cluster; completes on its `barrier`",
    ),
    TileOpRow(
        "tma_copy_out",
        {"src": _R, "dst": _W},
        {"eviction_policy": "", "leader_scope": 0},
        "one thread (of every `leader_scope` ones, 0 = of all) starts the transfer and commits it as a bulk group",
    ),
    TileOpRow(
        "async_copy",
        {"src": _R, "dst": _W},
        {"coalesced_width": 0, "loop_layout": ""},  # layout text of the nest, pinned by the user
        "dst = src by cp.async; out-of-range elements read as 0. Complete when a cp_async group says so",
    ),
)

TILE_OPS: dict[str, TileOpRow] = {row.name: row for row in _ROWS}


def _register() -> None:
    for row in _ROWS:
        ir.register_op_attr(row.op_name, "TCallEffectKind", tirx.CallEffectKind.Opaque.value, level=20)
        ir.register_op_attr(row.op_name, "TScriptPrinterName", row.op_name.replace(".", "_"), level=20)


_register()


def region_of(buffer: ir.Var, ranges: list[ir.Range] | None = None, span: ir.Span | None = None) -> ir.TensorRegion:
    """A region of `buffer`: the whole of it, or `ranges` (one per dimension)."""
    if ranges is None:
        ranges = [
            ir.Range.from_min_extent(tirx.const(0, s.ty.dtype if hasattr(s, "ty") else "int32"), s)
            for s in buffer.ty.shape
        ]
    return tirx.BufferRegion(buffer, ranges)


def make_tile_op(
    name: str, operands: Mapping[str, Any], attrs: Mapping[str, Any] | None = None, span: ir.Span | None = None
) -> tirx.Stmt:
    """The statement of one tile op. Raises KeyError for unknown operands or attributes."""
    row = TILE_OPS[name]
    if set(operands) != set(row.operands):
        raise KeyError(f"{name} takes operands {list(row.operands)}, got {list(operands)}")
    if attrs and not set(attrs) <= set(row.attrs):
        raise KeyError(f"{name} has attributes {list(row.attrs)}, got {list(attrs)}")
    full = {**row.attrs, **(attrs or {})}
    call = ir.Call(
        ir.Op.get(row.op_name),
        [operands[k] for k in row.operands],
        attrs=ir.make_node("ir.DictAttrs", **full) if full else None,
        ret_ty="void",
        span=span,
    )
    return tirx.Evaluate(call, span=span)


@dataclass(frozen=True)
class TileOp:
    """A tile op taken apart: `op["src"]` is an operand, `op.attrs["dim"]` an attribute."""

    row: TileOpRow
    operands: Mapping[str, Any]
    attrs: Mapping[str, Any]
    span: ir.Span | None

    @property
    def name(self) -> str:
        return self.row.name

    def __getitem__(self, operand: str) -> Any:
        return self.operands[operand]

    def regions(self, *accesses: Access) -> list[ir.TensorRegion]:
        """Region operands used in one of `accesses`."""
        return [self.operands[k] for k, a in self.row.operands.items() if a in accesses]

    @property
    def reads(self) -> list[ir.TensorRegion]:
        return self.regions(Access.READ, Access.UPDATE)

    @property
    def writes(self) -> list[ir.TensorRegion]:
        return self.regions(Access.WRITE, Access.UPDATE)

    @staticmethod
    @lru_cache(maxsize=16384)  # statements are immutable, and every pass asks again
    def from_stmt(stmt: Any) -> TileOp | None:
        """The tile op that a statement is, or None."""
        if not isinstance(stmt, tirx.Evaluate) or not isinstance(stmt.value, ir.Call):
            return None
        name = getattr(stmt.value.op, "name", "")
        if not name.startswith(TILE_OP_PREFIX):
            return None
        row = TILE_OPS[name[len(TILE_OP_PREFIX) :]]
        given = dict(stmt.value.attrs.items()) if stmt.value.attrs is not None else {}
        attrs = {k: _plain(given[k]) if k in given else v for k, v in row.attrs.items()}
        return TileOp(row, dict(zip(row.operands, stmt.value.args, strict=True)), attrs, stmt.span)

    @staticmethod
    def of(stmt: Any) -> TileOp:
        """The tile op that a statement is known to be; TypeError where it is none."""
        op = TileOp.from_stmt(stmt)
        if op is None:
            raise TypeError(f"no tile op: {stmt}")
        return op


def _plain(value: Any) -> Any:
    """A Python value of what TVM's attribute dictionary gives back."""
    if isinstance(value, tirx.IntImm):
        return bool(value.value) if str(value.ty.dtype) == "bool" else int(value.value)
    if isinstance(value, str):
        return str(value)
    return value
