# SPDX-License-Identifier: Apache-2.0
"""A static estimate of how long a tile program takes on a GPU, from its tile ops alone.

Used to rank configurations where nothing can be timed. It counts, over a sample of blocks, the floating-point
operations of the products and the bytes of the copies; lets the pipeline hide the shorter of the two; and rounds the
blocks up to whole waves over the SMs at the occupancy that shared memory, threads and registers allow. It knows
nothing of bank conflicts, masks or exponentials: an order of candidates, no prediction of a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import sym, tirx

from tilelang.ir.attrs import FRAGMENT, GLOBAL, SHARED_SCOPES
from tilelang.ir.stmts import as_list, bodies, const_int, dtype_of, pipeline_stages, shape_of, substitute, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.target.arch import DEFAULT_CUDA, Arch, arch_of

__all__ = ["DoesNotFit", "estimate_ms"]

# Blocks looked at: enough to see the triangle of a causal mask, few enough to be quick.
_SAMPLES_PER_AXIS = 4
# Assumed where a loop's trip count depends on data.
_UNKNOWN_TRIPS = 8
# Cost of one trip that no pipeline hides, in seconds: the round trip of a load through L2 and of a product's result.
# Measured copies and products on sm_90 lie near 600 and 130 cycles at 1.7 GHz.
_TRIP_LATENCY_S = 0.4e-6
# L2 feeds the SMs about this many times faster than memory does (measured ratio of read bandwidths on sm_90: 1.6-2).
_L2_OVER_DRAM = 1.8
# Registers a thread needs beside the tiles it holds.
_SCALAR_REGS = 40


class DoesNotFit(ValueError):
    """The program asks for more than an SM has."""


@dataclass
class _Work:
    """What one block does."""

    flops: float = 0.0
    bytes: float = 0.0
    exposed_trips: float = 0.0  # trips whose latency nothing hides

    def add(self, other: _Work, times: float) -> None:
        self.flops += times * other.flops
        self.bytes += times * other.bytes
        self.exposed_trips += times * other.exposed_trips


def estimate_ms(func: Any, arch: str | Arch = DEFAULT_CUDA) -> float:
    """Estimated milliseconds of all launches of a tile program. Raises DoesNotFit where a block cannot run."""
    where = arch_of(arch)
    total = 0.0
    for grid, threads, body in _launches(as_list(func.body)):
        total += _launch_seconds(grid, threads, body, where)
    return 1e3 * total


def _launches(stmts: list[Any]) -> Iterator[tuple[list[tuple[Any, int]], int, list[Any]]]:
    """(grid axes with extents, threads, body) of each launch."""
    for stmt in stmts:
        axes: list[tuple[Any, int, str]] = []
        parts: list[Any] = []
        inner: Any = stmt
        while isinstance(inner, tirx.AttrStmt) and inner.attr_key == "thread_extent":
            extent = const_int(inner.value)
            axes.append((inner.node.var, _UNKNOWN_TRIPS if extent is None else extent, str(inner.node.thread_tag)))
            parts = as_list(inner.body)
            inner = parts[0] if len(parts) == 1 else None
        if axes:
            grid = [(var, extent) for var, extent, tag in axes if tag.startswith("blockIdx")]
            threads = math.prod(extent for _, extent, tag in axes if tag.startswith("threadIdx"))
            yield grid, threads, parts
        elif isinstance(stmt, tirx.AttrStmt):
            yield from _launches(as_list(stmt.body))


def _launch_seconds(grid: list[tuple[Any, int]], threads: int, body: list[Any], arch: Arch) -> float:
    blocks = math.prod(extent for _, extent in grid)
    if blocks == 0:
        return 0.0
    resident = _occupancy(body, threads, arch)
    per_sm = arch.tensor_tflops * 1e12 / arch.num_sms
    l2_per_sm = arch.dram_gbps * 1e9 * _L2_OVER_DRAM / arch.num_sms
    seconds = []
    for point in _sample(grid):
        work = _work(body, {var: tirx.const(value, "int32") for (var, _), value in zip(grid, point, strict=True)})
        exposed = work.exposed_trips * _TRIP_LATENCY_S / resident
        seconds.append(
            max(work.flops / (per_sm * _tile_efficiency(body)), work.bytes / l2_per_sm) + exposed + _TRIP_LATENCY_S
        )
    mean = sum(seconds) / len(seconds)
    # Uneven blocks fill gaps, so only the last wave is rounded up; a lone long block still bounds the whole.
    waves = max(math.ceil(blocks / (arch.num_sms * resident)) * resident, 1)
    return max(mean * min(waves, blocks), max(seconds))


def _sample(grid: list[tuple[Any, int]]) -> Iterator[tuple[int, ...]]:
    steps = [
        sorted({(2 * i + 1) * extent // (2 * _SAMPLES_PER_AXIS) for i in range(_SAMPLES_PER_AXIS)})
        for _, extent in grid
    ]
    return itertools.product(*steps)


def _work(stmts: list[Any], point: dict[Any, Any]) -> _Work:
    total = _Work()
    for stmt in stmts:
        op = TileOp.from_stmt(stmt)
        if op is not None:
            total.add(_op_work(op), 1.0)
        elif isinstance(stmt, tirx.Bind):
            point = {**point, stmt.var: sym.Analyzer().simplify(substitute(stmt.value, point))}
        elif isinstance(stmt, tirx.For) and stmt.kind is not tirx.ForKind.PARALLEL:
            trips = _trips(stmt, point)
            inside = _work(as_list(stmt.body), point)
            stages = pipeline_stages(stmt)
            total.add(inside, trips)
            total.exposed_trips += trips / max(stages, 1)
        else:
            arms = [_work(arm, point) for arm in bodies(stmt)]
            if arms:  # of a branch, the arm with more to do
                total.add(max(arms, key=lambda w: (w.flops, w.bytes)), 1.0)
    return total


def _trips(loop: Any, point: dict[Any, Any]) -> float:
    extent = const_int(sym.Analyzer().simplify(substitute(loop.extent, point)))
    return float(max(extent, 0)) if extent is not None else float(_UNKNOWN_TRIPS)


def _op_work(op: TileOp) -> _Work:
    if op.name == "gemm":
        m, n = _extents(op["c"])[-2:]
        k = _extents(op["a"])[-2 if op.attrs["trans_a"] else -1]
        return _Work(flops=2.0 * m * n * k)
    if op.name == "copy" and GLOBAL in (op["src"].source.ty.storage_scope, op["dst"].source.ty.storage_scope):
        outer = op["src"] if op["src"].source.ty.storage_scope == GLOBAL else op["dst"]
        return _Work(bytes=math.prod(_extents(outer)) * _bits(outer.source) / 8)
    return _Work()


def _extents(region: Any) -> list[int]:
    found = [const_int(r.extent) for r in region.region]
    return [_UNKNOWN_TRIPS if e is None else e for e in found]


def _bits(buffer: Any) -> int:
    import tvm

    return tvm.DataType(dtype_of(buffer)).bits


def _tile_efficiency(body: list[Any]) -> float:
    """Share of the tensor cores' rate that the smallest product tile can draw: narrow tiles wait for shared memory.

    A product of an m x n tile reads (m + n) k elements for m n k multiplications; at 128 x 256 that is hidden, at 64
    x 64 the shared-memory port is the limit.
    """
    shares = [1.0]
    for stmt in walk_list(body):
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "gemm":
            m, n = _extents(op["c"])[-2:]
            shares.append(min(1.0, (m * n / (m + n)) / (128 * 128 / 256)))
    return min(shares)


def _occupancy(body: list[Any], threads: int, arch: Arch) -> int:
    """Blocks that fit on one SM. Raises DoesNotFit for none."""
    shared, register_bits = 0, 0
    stages = max([pipeline_stages(s) for s in walk_list(body) if isinstance(s, tirx.For)], default=0)
    loaded = _loaded_in_pipelines(body)
    for stmt in walk_list(body):
        if not isinstance(stmt, tirx.AllocBuffer):
            continue
        buffer: Any = stmt.buffer
        bits = math.prod(shape_of(buffer)) * _bits(buffer)
        if buffer.ty.storage_scope in SHARED_SCOPES:
            shared += bits // 8 * (max(stages, 1) if buffer in loaded else 1)
        elif buffer.ty.storage_scope == FRAGMENT:
            register_bits += bits
    if shared > arch.smem_bytes_per_block:
        raise DoesNotFit(f"{shared} bytes of shared memory, a block has {arch.smem_bytes_per_block}")
    registers = min(register_bits // 32 // threads + _SCALAR_REGS, arch.max_regs_per_thread)
    return max(
        1,
        min(
            arch.smem_bytes_per_sm // max(shared + arch.smem_bytes_reserved, 1),
            arch.max_threads_per_sm // threads,
            arch.regs_per_sm // (registers * threads),
            arch.max_blocks_per_sm,
        ),
    )


def _loaded_in_pipelines(body: list[Any]) -> set[Any]:
    """Shared buffers that a pipelined loop fills from global memory: they get one version a stage."""
    found: set[Any] = set()
    for loop in walk_list(body):
        if not (isinstance(loop, tirx.For) and pipeline_stages(loop) > 0):
            continue
        for stmt in walk_list(as_list(loop.body)):
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "copy" and op["src"].source.ty.storage_scope == GLOBAL:
                found.add(op["dst"].source)
    return found
