# SPDX-License-Identifier: Apache-2.0
"""What blocks of a cluster exchange: copies from one block's shared memory into another's, and barriers for them."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.asynchronous import tma_copy
from tilelang.language.barriers import alloc_barrier, barrier_element
from tilelang.language.elementwise import element_at, open_nest
from tilelang.language.kernel import current_launch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import cast_to
from tilelang.tir_builder.regions import pair_regions
from tilelang.tir_builder.values import as_expr, choose

__all__ = ["alloc_cluster_barrier", "copy_cluster"]


def alloc_cluster_barrier(arrive_count: Any) -> Any:
    """Barriers that other blocks of the cluster arrive at (`T.mbarrier_arrive(bar, cta_id)`) or send tiles to.

    As T.alloc_barrier: in a launch with clusters all barriers are ready for the whole cluster when the kernel starts.
    """
    return alloc_barrier(arrive_count)


def copy_cluster(
    src: Any, dst: Any, *, dst_block: Any = None, cluster_mask: int | None = None, remote_barrier: Any = None
) -> None:
    """Copy a tile into other blocks of the cluster; the program waits for it.

    With `dst_block` (a rank in the cluster), from shared memory into the same place as `dst` of that block: one thread
    starts, and the bytes complete on `remote_barrier` of that block, which must expect them. Without a barrier all
    threads store their elements, also out of registers, and that block sees them behind T.cluster_sync(). With
    `cluster_mask`, from a tensor into the same place of all blocks whose bit is set: T.tma_copy with that mask, on
    `remote_barrier`.
    """
    current_launch("copy_cluster")
    if (dst_block is None) == (cluster_mask is None):
        raise errors.LoopOptions(
            why="T.copy_cluster takes either dst_block or cluster_mask", instead="give one of the two"
        )
    if cluster_mask is not None:
        tma_copy(src, dst, barrier=remote_barrier, cluster_mask=cluster_mask)
        return
    builder = Builder.current("copy_cluster")
    a, b = pair_regions(src, dst, "copy_cluster")
    if remote_barrier is None:
        _store_elements(builder, a, b, as_expr(dst_block, "int32"))
        return
    for operand, region in (("src", a), ("dst", b)):
        scope = region.source.ty.storage_scope
        if scope not in attrs.SHARED_SCOPES:
            raise errors.BadChoice(what=f"the memory of {operand}", value=scope, choices="shared", arg=operand)
    if a.source.ty.dtype != b.source.ty.dtype:
        kinds = str(a.source.ty.dtype), str(b.source.ty.dtype)
        raise errors.BadChoice(what="the type of dst", value=kinds[1], choices=f"{kinds[0]}, that of src", arg="dst")
    operands = {
        "src": a,
        "dst": b,
        "barrier": barrier_element(remote_barrier, "copy_cluster", "remote_barrier"),
        "block": as_expr(dst_block, "int32"),
    }
    builder.tile_op("tma_copy_cluster", operands)


def _store_elements(builder: Builder, src: Any, dst: Any, block: Any) -> None:
    """Element by element, converted, into the shared memory of a block."""
    scope = dst.source.ty.storage_scope
    if scope not in attrs.SHARED_SCOPES:
        raise errors.BadChoice(what="the memory of dst", value=scope, choices="shared", arg="dst")
    loop = open_nest(builder, dst)
    value, readable = element_at(src, loop.values)
    place, _ = element_at(dst, loop.values)
    dtype = str(dst.source.ty.dtype)
    value = cast_to(value if readable is True else choose(readable, value, cast_to(0, str(value.ty.dtype))), dtype)
    if dtype.startswith("float8"):
        value, dtype = tirx.reinterpret("uint8", value), "uint8"
    builder.emit(device_op("store_remote", tirx.address_of(place), block, value, dtype=dtype, span=builder.span))
    loop.close()
