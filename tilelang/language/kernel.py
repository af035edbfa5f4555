# SPDX-License-Identifier: Apache-2.0
"""The launch: `T.Kernel`, block and thread indices, options of the launch."""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.checks import known_integer
from tilelang.language.placement import place_tensors
from tilelang.target.arch import MAX_BLOCK, MAX_CLUSTER, MAX_GRID
from tilelang.tir_builder.builder import Builder, LaunchInfo
from tilelang.tir_builder.dtypes import cast_to, dtype_of
from tilelang.tir_builder.values import as_expr, describe, fold, is_scalar, python_value

__all__ = [
    "ClusterKernel",
    "Kernel",
    "annotate_min_blocks_per_sm",
    "current_launch",
    "get_block_binding",
    "get_block_bindings",
    "get_block_extent",
    "get_block_extents",
    "get_thread_binding",
    "get_thread_bindings",
    "get_thread_extent",
    "get_thread_extents",
    "sync_threads",
    "use_swizzle",
]

_DEFAULT_THREADS = 128
_AXES = "xyz"


class Kernel:
    """`with T.Kernel(*grid, threads=128) as (bx, by):` launches the body once for every block of the grid.

    1 to 3 grid extents, numbers or expressions; `threads` is a number or up to three. A launch with one extent gives
    the index itself (or a 1-tuple where unpacked), otherwise a list of indices, x first.
    """

    def __init__(self, *grid: Any, threads: Any = None, prelude: str | None = None, cluster_dims: Any = None) -> None:
        self.builder = Builder.current("Kernel")
        if self.builder.eager is not None:
            self.builder.eager.at_launch()  # before the checks: sizes are not known while they are being learnt
        self.grid = _grid(grid)
        self.block = _block(_DEFAULT_THREADS if threads is None else threads)
        if not isinstance(prelude, str | None):
            raise errors.BadChoice(what="prelude", value=prelude, choices="CUDA source text, None", arg="prelude")
        self.prelude = prelude
        self.cluster_dims = None if cluster_dims is None else _cluster(cluster_dims, self.grid)
        self.target_names: tuple[Any, ...] = ()  # told by the tracer

    def __enter__(self) -> Any:
        builder = self.builder
        if builder.launch is not None or builder.on_device:
            raise errors.KernelNested()
        self.span = builder.span
        names = [n if isinstance(n, str) else None for n in self.target_names]
        names += [None] * (len(self.grid) - len(names))
        blocks = [builder.var(n or f"b{_AXES[i]}") for i, n in enumerate(names[: len(self.grid)])]
        threads = [builder.var(f"t{_AXES[i]}") for i in range(len(self.block))]
        self.info = builder.launch = LaunchInfo(blocks, threads, self.grid, self.block)
        builder.launches += 1
        if self.prelude:
            builder.func_attrs[attrs.PRELUDE] = builder.func_attrs.get(attrs.PRELUDE, "") + self.prelude
        if self.cluster_dims is not None:
            self.info.attrs[attrs.CLUSTER_DIMS] = self.cluster_dims
        self.frame = builder.push("kernel")
        return blocks[0] if len(blocks) == 1 else blocks

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            return
        body = place_tensors(self.builder.pop(self.frame), self.builder.placements)
        self.builder.placements.clear()
        self.builder.launch = None
        for key, option in self.info.attrs.items():
            body = tirx.AttrStmt(tirx.const(0, "int32"), key, _attr_value(option), body, span=self.span)
        for i in reversed(range(len(self.block))):
            body = self._bind(f"threadIdx.{_AXES[i]}", self.info.threads[i], self.block[i], body)
        for i in reversed(range(len(self.grid))):
            body = self._bind(f"blockIdx.{_AXES[i]}", self.info.blocks[i], self.grid[i], body)
        self.builder.emit(body)

    def _bind(self, tag: str, var: ir.Var, extent: Any, body: tirx.Stmt) -> tirx.Stmt:
        extent = as_expr(extent)
        start = tirx.const(0, str(extent.ty.dtype))
        axis = tirx.IterVar(ir.Range.from_min_extent(start, extent), var, tirx.IterVar.ThreadIndex, tag)
        return tirx.AttrStmt(axis, "thread_extent", extent, body, span=self.span)


def _grid(extents: tuple[Any, ...]) -> list[Any]:
    """The blocks along each axis: what is known must be within the limits of a launch."""
    if not 1 <= len(extents) <= len(_AXES):
        raise errors.GridRank(what="grid", count=len(extents))
    out = []
    for i, (extent, limit) in enumerate(zip(extents, MAX_GRID, strict=False)):
        value, what = python_value(fold(extent)), f"the number of blocks along {_AXES[i]}"
        if not is_scalar(value):
            out.append(known_integer(value, what, 0, limit, arg=i))
        elif "int" in dtype_of(value):
            out.append(cast_to(value, "int32"))
        else:
            raise errors.BadPositive(what=what, required="an integer", value=describe(value), arg=i)
    return out


def _block(threads: Any) -> list[int]:
    """The threads of a block along each axis."""
    extents = list(threads) if isinstance(threads, tuple | list) else [threads]
    if not 1 <= len(extents) <= len(_AXES):
        raise errors.GridRank(what="block of threads", count=len(extents), arg="threads")
    names = ["threads"] if len(extents) == 1 else [f"threads along {a}" for a in _AXES]
    block = [
        known_integer(e, name, 1, limit, arg="threads")
        for e, name, limit in zip(extents, names, MAX_BLOCK, strict=False)
    ]
    known_integer(math.prod(block), "the number of threads of a block", 1, MAX_BLOCK[0], arg="threads")
    return block


def _cluster(dims: Any, grid: list[Any]) -> list[int]:
    """The blocks of a cluster along each axis, which must divide the grid."""
    extents = list(dims) if isinstance(dims, tuple | list) else [dims]
    if not 1 <= len(extents) <= len(_AXES):
        raise errors.GridRank(what="cluster", count=len(extents), arg="cluster_dims")
    out = [
        known_integer(e, f"cluster_dims along {a}", 1, arg="cluster_dims") for e, a in zip(extents, _AXES, strict=False)
    ]
    known_integer(math.prod(out), "the number of blocks of a cluster", 1, MAX_CLUSTER, arg="cluster_dims")
    for axis, size in enumerate(out):
        blocks = grid[axis] if axis < len(grid) else 1
        if isinstance(blocks, int) and blocks % size:
            what, required = f"the number of blocks along {_AXES[axis]}", f"a multiple of cluster_dims ({size})"
            raise errors.BadPositive(what=what, required=required, value=blocks, arg=axis)
    return out


def ClusterKernel(*grid: Any, cluster_dims: Any, threads: Any = None, prelude: str | None = None) -> Kernel:
    """A launch whose blocks come in clusters of `cluster_dims` blocks (sm_90)."""
    return Kernel(*grid, threads=threads, prelude=prelude, cluster_dims=cluster_dims)


def _attr_value(value: Any) -> Any:
    return ir.StringImm(",".join(str(v) for v in value)) if isinstance(value, list) else as_expr(value)


def current_launch(name: str) -> LaunchInfo:
    """The launch being traced. Raises NoKernel, naming `T.<name>`, outside of one."""
    launch = Builder.current(name).launch
    if launch is None:
        raise errors.NoKernel(name=name)
    return launch


def _axis(function: str, axes: list[Any], dim: int) -> Any:
    if not 0 <= dim < len(axes):
        choices = ", ".join(str(d) for d in range(len(axes)))
        raise errors.BadChoice(what=f"dim of T.{function}", value=dim, choices=choices, arg="dim")
    return axes[dim]


def get_thread_binding(dim: int = 0) -> Any:
    """The index of this thread along `dim` (0 is x)."""
    return _axis("get_thread_binding", current_launch("get_thread_binding").threads, dim)


def get_thread_bindings() -> list[Any]:
    """The indices of this thread, x first."""
    return list(current_launch("get_thread_bindings").threads)


def get_thread_extent(dim: int = 0) -> Any:
    """The number of threads of the block along `dim`."""
    return _axis("get_thread_extent", current_launch("get_thread_extent").block, dim)


def get_thread_extents() -> list[Any]:
    """The numbers of threads of the block, x first."""
    return list(current_launch("get_thread_extents").block)


def get_block_binding(dim: int = 0) -> Any:
    """The index of this block along `dim` (0 is x)."""
    return _axis("get_block_binding", current_launch("get_block_binding").blocks, dim)


def get_block_bindings() -> list[Any]:
    """The indices of this block, x first."""
    return list(current_launch("get_block_bindings").blocks)


def get_block_extent(dim: int = 0) -> Any:
    """The number of blocks of the grid along `dim`."""
    return _axis("get_block_extent", current_launch("get_block_extent").grid, dim)


def get_block_extents() -> list[Any]:
    """The numbers of blocks of the grid, x first."""
    return list(current_launch("get_block_extents").grid)


def annotate_min_blocks_per_sm(count: int) -> None:
    """Ask for registers such that `count` blocks fit on one multiprocessor."""
    launch = current_launch("annotate_min_blocks_per_sm")
    launch.attrs[attrs.MIN_BLOCKS] = known_integer(count, "the number of blocks on a multiprocessor", 1, arg="count")


_ORDERS = ("row", "column", "mlx")


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Walk the grid in panels of `panel_size` rows or columns, so that neighbouring blocks share data in L2."""
    current_launch("use_swizzle")
    if order not in _ORDERS:
        raise errors.BadChoice(what="order", value=order, choices=", ".join(_ORDERS), arg="order")
    panel = known_integer(panel_size, "panel_size", 1, arg="panel_size")
    if enable:
        Builder.current("use_swizzle").tile_op("use_swizzle", {}, {"panel": panel, "order": order})


def sync_threads(barrier_id: int | None = None, arrive_count: int | None = None) -> None:
    """A barrier of all threads of the block. The compiler inserts those that it needs by itself.

    With `barrier_id` and `arrive_count` it is the named barrier of that many threads.
    """
    launch = current_launch("sync_threads")
    builder = Builder.current("sync_threads")
    if barrier_id is None and arrive_count is None:
        builder.tile_op("sync_threads", {})
        return
    count: Any = arrive_count
    if count is None:
        count = 1
        for extent in launch.block:
            count = count * extent
    builder.emit(device_op("bar_sync", as_expr(barrier_id or 0), as_expr(count), span=builder.span))
