# SPDX-License-Identifier: Apache-2.0
"""Where a block stands in its cluster, and loops whose iterations are threads or blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.control import sync_grid
from tilelang.language.kernel import current_launch
from tilelang.tir_builder.branches import DeviceBranch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.loops import leave_device_loop
from tilelang.tir_builder.values import as_condition, as_expr, binary, python_value

__all__ = [
    "get_cluster_dims",
    "get_cluster_extent",
    "get_cluster_extents",
    "get_cluster_id",
    "get_cluster_ids",
    "get_cluster_size",
    "loop_break",
    "sync_global",
    "thread_binding",
]

_AXES = "xyz"


def _dims(name: str) -> list[int]:
    launch = current_launch(name)
    given = [int(d) for d in launch.attrs.get(attrs.CLUSTER_DIMS, [])]
    return [*given, *[1] * (len(_AXES) - len(given))]


def get_cluster_dims() -> list[int]:
    """The blocks of a cluster along x, y and z."""
    return _dims("get_cluster_dims")


def get_cluster_size() -> int:
    """The number of blocks of a cluster; 1 in a launch without clusters."""
    x, y, z = _dims("get_cluster_size")
    return x * y * z


def get_cluster_ids() -> list[Any]:
    """The indices of this block's cluster in the grid of clusters, x first."""
    dims = _dims("get_cluster_ids")
    blocks = current_launch("get_cluster_ids").blocks
    return [binary("//", b, d) if d > 1 else b for b, d in zip(blocks, dims, strict=False)]


def get_cluster_id(dim: int = 0) -> Any:
    """The index of this block's cluster along `dim` (0 is x)."""
    return _pick("get_cluster_id", get_cluster_ids(), dim)


def get_cluster_extents() -> list[Any]:
    """The numbers of clusters of the grid, x first."""
    dims = _dims("get_cluster_extents")
    grid = current_launch("get_cluster_extents").grid
    return [binary("//", g, d) if d > 1 else g for g, d in zip(grid, dims, strict=False)]


def get_cluster_extent(dim: int = 0) -> Any:
    """The number of clusters of the grid along `dim` (0 is x)."""
    return _pick("get_cluster_extent", get_cluster_extents(), dim)


def _pick(function: str, values: list[Any], dim: int) -> Any:
    if not 0 <= dim < len(values):
        choices = ", ".join(str(d) for d in range(len(values)))
        raise errors.BadChoice(what=f"dim of T.{function}", value=dim, choices=choices, arg="dim")
    return values[dim]


def sync_global() -> None:
    """A barrier of all blocks of the grid: an older name of T.sync_grid."""
    sync_grid()


def loop_break() -> None:
    """Leave the innermost device loop; the same as Python's `break`."""
    builder = Builder.current("loop_break")
    loop = builder.loops[-1] if builder.loops else None
    if loop is None:
        raise errors.NotSupported(what="T.loop_break outside of a device loop", instead="write `break`, or T.serial")
    leave_device_loop(builder, loop, "T.loop_break", tirx.Break)


class thread_binding:
    """`for i in T.thread_binding(n, thread="threadIdx.x"):` iteration i is run by the thread (or block) of that index.

    `start` shifts the index. Threads beyond the range run nothing; a range beyond the threads is an error.
    """

    def __init__(self, start: Any, stop: Any = None, thread: str | None = None, *, annotations: Any = None) -> None:
        if isinstance(stop, str):
            stop, thread = None, stop
        self.start, self.stop = (0, start) if stop is None else (start, stop)
        self.tag = thread or "threadIdx.x"
        launch = current_launch("thread_binding")
        of = {"threadIdx": (launch.threads, launch.block), "blockIdx": (launch.blocks, launch.grid)}
        kind, _, axis = self.tag.partition(".")
        known = [f"{k}.{_AXES[i]}" for k, (v, _) in of.items() for i in range(len(v))]
        if self.tag not in known:
            raise errors.BadChoice(what="thread", value=self.tag, choices=", ".join(known), arg="thread")
        variables, extents = of[kind]
        at = _AXES.index(axis)
        self.variable, self.extent = variables[at], extents[at]

    def trace(self, builder: Builder, names: Any) -> Iterator[Any]:
        """One trip, guarded against indices outside of the range."""
        count = python_value(as_expr(self.stop) - as_expr(self.start)) if self.start != 0 else self.stop
        if isinstance(count, int) and isinstance(self.extent, int) and count > self.extent:
            raise errors.BadPositive(
                what=f"the extent of a loop bound to {self.tag}", required=f"{self.extent} at most", value=count
            )
        inside = True if count is self.extent else as_condition(self.variable < count)
        if isinstance(count, int) and isinstance(self.extent, int) and count == self.extent:
            inside = True
        branch = None if inside is True else DeviceBranch(builder, inside)
        if branch is not None:
            branch.then()
        yield self.variable if self.start == 0 else builder.bind(as_expr(self.variable + self.start), "index")
        if branch is not None:
            branch.leave()
            branch.close()
