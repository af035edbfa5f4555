# SPDX-License-Identifier: Apache-2.0
"""The launch: `T.Kernel`, block and thread indices, options of the launch."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.tir_builder.builder import Builder, LaunchInfo
from tilelang.tir_builder.values import as_expr, python_value, static_int

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
        block = (
            [_DEFAULT_THREADS] if threads is None else list(threads) if isinstance(threads, tuple | list) else [threads]
        )
        for what, extents in (("grid", grid), ("block of threads", block)):
            if not 1 <= len(extents) <= len(_AXES):
                raise errors.GridRank(what=what, count=len(extents))
        block = [python_value(t) for t in block]
        for extent in block:
            known = static_int(extent)
            if known is not None and known <= 0:
                raise errors.BadPositive(what="threads", required="a positive number", value=known, arg="threads")
        self.grid = [python_value(g) for g in grid]
        self.block = block
        self.prelude = prelude
        self.cluster_dims = cluster_dims
        self.target_names: tuple[Any, ...] = ()  # told by the tracer

    def __enter__(self) -> Any:
        builder = self.builder
        if builder.launch is not None or builder.on_device:
            raise errors.KernelNested()
        if builder.eager is not None:
            builder.eager.at_launch()
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
            self.info.attrs[attrs.CLUSTER_DIMS] = list(self.cluster_dims)
        self.frame = builder.push("kernel")
        return blocks[0] if len(blocks) == 1 else blocks

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            return
        body = self.builder.pop(self.frame)
        self.builder.launch = None
        for key, option in self.info.attrs.items():
            body = tirx.AttrStmt(tirx.const(0, "int32"), key, _attr_value(option), body, span=self.span)
        tags = [("threadIdx", v, e) for v, e in zip(self.info.threads, self.block, strict=True)]
        for i in range(len(tags) - 1, -1, -1):
            body = self._bind(f"threadIdx.{_AXES[i]}", self.info.threads[i], self.block[i], body)
        for i in range(len(self.grid) - 1, -1, -1):
            body = self._bind(f"blockIdx.{_AXES[i]}", self.info.blocks[i], self.grid[i], body)
        self.builder.emit(body)

    def _bind(self, tag: str, var: ir.Var, extent: Any, body: tirx.Stmt) -> tirx.Stmt:
        extent = as_expr(extent)
        start = tirx.const(0, str(extent.ty.dtype))
        axis = tirx.IterVar(ir.Range.from_min_extent(start, extent), var, tirx.IterVar.ThreadIndex, tag)
        return tirx.AttrStmt(axis, "thread_extent", extent, body, span=self.span)


def ClusterKernel(*grid: Any, cluster_dims: Any, threads: Any = None, prelude: str | None = None) -> Kernel:
    """A launch whose blocks come in clusters of `cluster_dims` blocks (sm_90)."""
    dims = cluster_dims if isinstance(cluster_dims, tuple | list) else (cluster_dims,)
    return Kernel(*grid, threads=threads, prelude=prelude, cluster_dims=dims)


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
    current_launch("annotate_min_blocks_per_sm").attrs[attrs.MIN_BLOCKS] = int(count)


_ORDERS = ("row", "column", "mlx")


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Walk the grid in panels of `panel_size` rows or columns, so that neighbouring blocks share data in L2."""
    current_launch("use_swizzle")
    if order not in _ORDERS:
        raise errors.BadChoice(what="order", value=order, choices=", ".join(_ORDERS), arg="order")
    if panel_size <= 0:
        raise errors.BadPositive(what="panel_size", required="a positive number", value=panel_size, arg="panel_size")
    if enable:
        Builder.current("use_swizzle").tile_op("use_swizzle", {}, {"panel": int(panel_size), "order": order})


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
