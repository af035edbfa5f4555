# SPDX-License-Identifier: Apache-2.0
"""Transfers and products that the program itself waits for: T.tma_copy, T.async_copy, T.wgmma_gemm.

Beside them the compiler goes on placing block barriers and proxy fences between conflicting accesses; when a transfer
or a product is complete, the program says.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.barriers import barrier_element
from tilelang.language.elementwise import layout_text
from tilelang.language.kernel import current_launch
from tilelang.language.tile import GemmWarpPolicy, multiply
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.regions import pair_regions, whole_region
from tilelang.tir_builder.values import describe, is_buffer, static_int

__all__ = [
    "access_ptr",
    "async_copy",
    "ptx_commit_group",
    "ptx_cp_async",
    "ptx_wait_group",
    "tma_copy",
    "tma_store_arrive",
    "tma_store_wait",
    "wait_wgmma",
    "wgmma_gemm",
]

_WARP = 32  # threads, CUDA C++ programming guide, "SIMT architecture"
_CP_ASYNC_BYTES = (4, 8, 16)  # PTX ISA, "cp.async"


def tma_copy(
    src: Any,
    dst: Any,
    *,
    barrier: Any = None,
    cluster_mask: Any = None,
    leader_scope_threads: int | None = None,
    eviction_policy: str | None = None,
    annotations: Any = None,
) -> None:
    """A transfer of a tile by the copy engine; the program waits for it.

    From a tensor to shared memory: one thread announces the bytes to `barrier` and starts; it does not arrive. From
    shared memory to a tensor: one thread starts and commits; wait with T.tma_store_wait. The thread is the first of
    those that execute it, or of every `leader_scope_threads` of them.

    With `cluster_mask` (bit i: block i of the cluster) the first block of the mask loads the tile into all of them, at
    the same place; each of them announces the bytes to its own barrier. Blocks outside of the mask load for themselves.
    """
    current_launch("tma_copy")
    builder = Builder.current("tma_copy")
    if cluster_mask is not None and (static_int(cluster_mask) or 0) < 1:
        raise errors.BadPositive(
            what="cluster_mask", required="a positive number, one bit a block", value=cluster_mask, arg="cluster_mask"
        )
    scope = leader_scope_threads or 0
    if scope and (scope < 0 or scope % _WARP):
        raise errors.BadPositive(
            what="leader_scope_threads", required="a multiple of 32", value=scope, arg="leader_scope_threads"
        )
    a, b = pair_regions(src, dst, "tma_copy")
    policy = str(eviction_policy or (annotations or {}).get("eviction_policy") or "")
    if policy not in ("", "evict_normal", "evict_first", "evict_last"):
        choices = "evict_normal, evict_first, evict_last"
        raise errors.BadChoice(what="eviction_policy", value=policy, choices=choices, arg="eviction_policy")
    scopes = a.source.ty.storage_scope, b.source.ty.storage_scope
    options = {"eviction_policy": policy, "leader_scope": scope}
    if scopes[0] == attrs.GLOBAL and scopes[1] in attrs.SHARED_SCOPES:
        target = barrier_element(barrier, "tma_copy")
        options["mask"] = int(cluster_mask or 0)
        builder.tile_op("tma_copy_in", {"src": a, "dst": b, "barrier": target}, options)
    elif scopes[0] in attrs.SHARED_SCOPES and scopes[1] == attrs.GLOBAL:
        builder.tile_op("tma_copy_out", {"src": a, "dst": b}, options)
    else:
        raise errors.NotSupported(
            what=f"T.tma_copy from {scopes[0]} to {scopes[1]} memory",
            instead="copy between a tensor and shared memory",
            arg="src",
        )


def tma_store_arrive() -> None:
    """Close the group of stores (T.tma_copy) that this thread has started."""
    _emit("tma_store_arrive", "bulk_commit")


def tma_store_wait(count: int = 0, read: bool = True) -> None:
    """Wait until at most `count` groups of stores of this thread still read shared memory, or, not `read`, are open."""
    _emit("tma_store_wait", "bulk_wait_read" if read else "bulk_wait", pending=_groups(count, "count"))


def async_copy(
    src: Any, dst: Any, *, coalesced_width: int | None = None, annotations: Any = None, loop_layout: Any = None
) -> None:
    """Copy a tile of a tensor to shared memory asynchronously (cp.async) and commit; wait with T.ptx_wait_group."""
    current_launch("async_copy")
    a, b = pair_regions(src, dst, "async_copy")
    scopes = a.source.ty.storage_scope, b.source.ty.storage_scope
    kinds = str(a.source.ty.dtype), str(b.source.ty.dtype)
    if scopes[0] != attrs.GLOBAL or scopes[1] not in attrs.SHARED_SCOPES or kinds[0] != kinds[1]:
        raise errors.NotSupported(
            what=f"T.async_copy from {scopes[0]} {kinds[0]} to {scopes[1]} {kinds[1]}",
            instead="copy from a tensor to shared memory of the same element type",
            arg="src",
        )
    width = int(coalesced_width or (annotations or {}).get("coalesced_width") or 0)
    builder = Builder.current("async_copy")
    layout = "" if loop_layout is None else layout_text(loop_layout)
    builder.tile_op("async_copy", {"src": a, "dst": b}, {"coalesced_width": width, "loop_layout": layout})
    builder.emit(device_op("cp_async_commit", span=builder.span))


def access_ptr(element: Any, access: str = "r", extent: Any = None) -> Any:
    """The address of an element, `A[i, j]`, or of the first one of a buffer, for T.ptx_cp_async and T.call_extern."""
    Builder.current("access_ptr")
    if is_buffer(element):
        element = whole_region(element)
    if isinstance(element, ir.TensorRegion):
        element = tirx.BufferLoad(element.source, [r.min for r in element.region])
    if not isinstance(element, ir.TensorLoad):
        raise errors.BadChoice(
            what="access_ptr of", value=describe(element), choices="an element, such as A[i, j]", arg="element"
        )
    return tirx.address_of(element)


def ptx_cp_async(dst: Any, src: Any, bytes: int) -> None:
    """Copy 4, 8 or 16 bytes of a tensor to shared memory asynchronously.

    `T.ptx_cp_async(T.access_ptr(S[i], "w"), T.access_ptr(A[i], "r"), 16)`
    """
    size = static_int(bytes)
    if size not in _CP_ASYNC_BYTES:
        raise errors.BadChoice(what="bytes", value=bytes, choices="4, 8, 16", arg="bytes")
    _emit("ptx_cp_async", "cp_async", dst, src, bytes=size)


def ptx_commit_group() -> None:
    """Close the group of asynchronous copies that this thread has started."""
    _emit("ptx_commit_group", "cp_async_commit")


def ptx_wait_group(count: int) -> None:
    """Wait until at most `count` groups of asynchronous copies are open, and for the other threads to get here."""
    _emit("ptx_wait_group", "cp_async_wait", pending=_groups(count, "count"))
    Builder.current("ptx_wait_group").tile_op("sync_threads", {})


def wgmma_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
) -> None:
    """T.gemm on wgmma or an error; it may run on until T.wait_wgmma, or until something needs its result."""
    multiply("wgmma_gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum, explicit=True)


def wait_wgmma(count: int = 0) -> None:
    """Wait until at most `count` of the products that T.wgmma_gemm has started are open."""
    current_launch("wait_wgmma")
    pending = _groups(count, "count")
    Builder.current("wait_wgmma").tile_op("wait_gemm", {}, {"pending": pending})


def _groups(count: Any, arg: str) -> int:
    known = static_int(count)
    if known is None or known < 0:
        raise errors.BadPositive(what="the number of groups", required="0 or more, constant", value=count, arg=arg)
    return known


def _emit(name: str, op: str, *args: Any, **statics: Any) -> None:
    current_launch(name)
    builder = Builder.current(name)
    builder.emit(device_op(op, *args, span=builder.span, **statics))
