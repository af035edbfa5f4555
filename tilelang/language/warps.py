# SPDX-License-Identifier: Apache-2.0
"""Operations among the 32 threads of a warp. All threads of the warp must reach them together, or those that a mask
names: bit i for lane i, the same mask in all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.kernel import current_launch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.builtin_calls import maximum, minimum
from tilelang.tir_builder.dtypes import cast_to, dtype_of
from tilelang.tir_builder.values import as_condition, as_expr, binary, static_int

__all__ = [
    "activemask",
    "all_sync",
    "any_sync",
    "ballot",
    "ballot_sync",
    "get_lane_idx",
    "get_warp_group_idx",
    "get_warp_idx",
    "get_warp_idx_sync",
    "match_all_sync",
    "match_any_sync",
    "shfl_down",
    "shfl_sync",
    "shfl_up",
    "shfl_xor",
    "shuffle_elect",
    "sync_warp",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "warp_reduce_bitand",
    "warp_reduce_bitor",
    "warp_reduce_max",
    "warp_reduce_min",
    "warp_reduce_sum",
]

_FULL_MASK = 0xFFFFFFFF
_WARP = 32  # threads, CUDA C++ programming guide, "SIMT architecture"
_WIDTHS = (1, 2, 4, 8, 16, 32)
_WARP_GROUP = 128  # threads, PTX ISA, "wgmma: warpgroup"


def _part(mask: Any) -> tuple[list[Any], dict[str, Any]]:
    """The operands and statics of an op among the lanes of a mask; none for all of them."""
    if mask is None:
        return [], {}
    known = static_int(mask)
    if known is None:
        return [cast_to(as_expr(mask), "uint32")], {"part": True}
    lanes = known & _FULL_MASK if known < 0 else known
    if not 0 < lanes <= _FULL_MASK:
        raise errors.BadChoice(what="mask", value=mask, choices="masks of 32 lanes, some of them set", arg="mask")
    return ([], {}) if lanes == _FULL_MASK else ([tirx.const(lanes, "uint32")], {"part": True})


def _shuffle(op: str, x: Any, lane: Any, width: int, mask: Any) -> Any:
    Builder.current(op)
    named, part = _part(mask)
    value = as_expr(x)
    if width not in _WIDTHS:
        raise errors.BadChoice(what="width", value=width, choices=", ".join(map(str, _WIDTHS)), arg="width")
    return device_op(op, value, as_expr(lane, "int32"), *named, dtype=dtype_of(value), width=int(width), **part)


def shfl_xor(x: Any, delta: Any, width: int = 32, mask: Any = None) -> Any:
    """x of the thread whose lane differs in the bits of `delta`."""
    return _shuffle("shfl_xor", x, delta, width, mask)


def shfl_down(x: Any, delta: Any, width: int = 32, mask: Any = None) -> Any:
    """x of the thread `delta` lanes up; the own x past the end."""
    return _shuffle("shfl_down", x, delta, width, mask)


def shfl_up(x: Any, delta: Any, width: int = 32, mask: Any = None) -> Any:
    """x of the thread `delta` lanes down; the own x before the start."""
    return _shuffle("shfl_up", x, delta, width, mask)


def shfl_sync(x: Any, lane: Any, width: int = 32, mask: Any = None) -> Any:
    """x of the thread in the given lane."""
    return _shuffle("shfl_idx", x, lane, width, mask)


def _butterfly(x: Any, join: Callable[[Any, Any], Any], name: str) -> Any:
    builder = Builder.current(name)
    value = builder.bind(as_expr(x), "lane_value")
    step = _WARP // 2
    while step:
        value = builder.bind(as_expr(join(value, shfl_xor(value, step))), "lane_value")
        step //= 2
    return value


def warp_reduce_sum(x: Any) -> Any:
    """The sum of x over the warp, in all of its threads."""
    return _butterfly(x, lambda a, b: a + b, "warp_reduce_sum")


def warp_reduce_max(x: Any) -> Any:
    """The greatest x of the warp, in all of its threads."""
    return _butterfly(x, maximum, "warp_reduce_max")


def warp_reduce_min(x: Any) -> Any:
    """The least x of the warp, in all of its threads."""
    return _butterfly(x, minimum, "warp_reduce_min")


def warp_reduce_bitand(x: Any) -> Any:
    """The bitwise and of x over the warp."""
    return _butterfly(x, lambda a, b: binary("&", a, b), "warp_reduce_bitand")


def warp_reduce_bitor(x: Any) -> Any:
    """The bitwise or of x over the warp."""
    return _butterfly(x, lambda a, b: binary("|", a, b), "warp_reduce_bitor")


def _vote(op: str, condition: Any, mask: Any) -> Any:
    Builder.current(op)
    named, part = _part(mask)
    test = as_condition(condition)
    return device_op(op, tirx.const(test, "bool") if isinstance(test, bool) else test, *named, **part)


def any_sync(condition: Any, mask: Any = None) -> Any:
    """Does the condition hold in some thread of the warp."""
    return _vote("vote_any", condition, mask)


def all_sync(condition: Any, mask: Any = None) -> Any:
    """Does the condition hold in every thread of the warp."""
    return _vote("vote_all", condition, mask)


def ballot_sync(condition: Any, mask: Any = None) -> Any:
    """Bit i is the condition of lane i."""
    return _vote("ballot", condition, mask)


ballot = ballot_sync


def _match(op: str, value: Any, mask: Any) -> Any:
    Builder.current(op)
    named, part = _part(mask)
    operand = as_expr(value)
    return device_op(op, operand, *named, dtype=dtype_of(operand), **part)


def match_any_sync(value: Any, mask: Any = None) -> Any:
    """Bit i says that lane i has the same bits in `value` as this one."""
    return _match("match_any", value, mask)


def match_all_sync(value: Any, mask: Any = None) -> Any:
    """All lanes (bits), where they have the same bits in `value`, else 0."""
    return _match("match_all", value, mask)


def _block_vote(op: str, condition: Any) -> Any:
    current_launch(op)
    test = as_condition(condition)
    return device_op(op, tirx.const(test, "bool") if isinstance(test, bool) else test)


def syncthreads_count(condition: Any) -> Any:
    """A barrier of the block, and the number of its threads for which the condition holds."""
    return _block_vote("sync_threads_count", condition)


def syncthreads_and(condition: Any) -> Any:
    """A barrier of the block, and whether the condition holds in all of its threads."""
    return _block_vote("sync_threads_and", condition)


def syncthreads_or(condition: Any) -> Any:
    """A barrier of the block, and whether the condition holds in some of its threads."""
    return _block_vote("sync_threads_or", condition)


def activemask() -> Any:
    """Bit i says that lane i executes this now."""
    Builder.current("activemask")
    return device_op("activemask")


def sync_warp(mask: Any = None) -> None:
    """A barrier of the warp, or of some of its lanes, which orders their memory accesses."""
    builder = Builder.current("sync_warp")
    named, part = _part(mask)
    builder.emit(device_op("syncwarp", *named, span=builder.span, **part))


def _linear_thread(name: str) -> Any:
    launch = current_launch(name)
    index: Any = 0
    for var, extent in zip(reversed(launch.threads), reversed(launch.block), strict=True):
        index = index * extent + var
    return index


def get_lane_idx(warp_size: int = _WARP) -> Any:
    """The lane of this thread in its warp."""
    return binary("%", _linear_thread("get_lane_idx"), warp_size)


def get_warp_idx(warp_size: int = _WARP) -> Any:
    """The warp of this thread in its block."""
    return binary("//", _linear_thread("get_warp_idx"), warp_size)


get_warp_idx_sync = get_warp_idx


def get_warp_group_idx(warp_size: int = _WARP, warps_per_group: int = _WARP_GROUP // _WARP) -> Any:
    """The warpgroup (four warps) of this thread in its block."""
    return binary("//", _linear_thread("get_warp_group_idx"), warp_size * warps_per_group)


def shuffle_elect(thread_extent: int = 0) -> Any:
    """Is this the thread that acts for its group: the first of every `thread_extent` threads, of the block if 0."""
    index = _linear_thread("shuffle_elect")
    if thread_extent < 0:
        raise errors.BadPositive(
            what="thread_extent", required="0 or more threads", value=thread_extent, arg="thread_extent"
        )
    return binary("%", index, thread_extent) == 0 if thread_extent else index == 0
