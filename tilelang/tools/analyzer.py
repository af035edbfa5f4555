# SPDX-License-Identifier: Apache-2.0
"""Arithmetic and traffic of a tile program, counted off its text, and the least time that a GPU needs for them.

Counted are the floating-point operations of gemms (a multiplication and an addition are two) and the bytes of tensors
that copies and elementwise loops read and write, over the grid and the loops around them. Tiles over the edge of a
tensor count whole. Trip counts and conditions that depend on block indices and loop variables are evaluated for each of
them; what only the data or the thread decides is assumed, and `Analysis.assumptions` says how.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.index_values import Opaque, evaluate
from tilelang.ir.attrs import GLOBAL, PARALLEL
from tilelang.ir.stmts import Kernel, bodies, dtype_of, inlined, launches, walk_list
from tilelang.ir.tile_ops import Access, TileOp
from tilelang.ir.walk import collect, loads_in, vars_in
from tilelang.target.arch import DEFAULT_CUDA, Arch, arch_of

__all__ = ["Analysis", "Analyzer"]

_MOST_VISITS = 200_000  # of blocks and iterations that are looked at one by one


@dataclass(frozen=True)
class Analysis:
    """Counts of one call of a program, all launches together, and what follows from them for an architecture."""

    total_flops: int  # of gemms
    total_global_bytes: int  # that blocks ask for: what several of them read counts for each
    dram_bytes: int  # the same with every tensor moved at most once: caches keep the rest
    estimated_time: float  # seconds: the longer of arithmetic at the peak rate and DRAM traffic at full bandwidth
    assumptions: tuple[str, ...] = ()

    @property
    def expected_tflops(self) -> float:
        """10^12 operations of gemms a second, in the estimated time."""
        return self.total_flops / self.estimated_time / 1e12 if self.estimated_time else 0.0

    @property
    def expected_bandwidth_GBps(self) -> float:
        """The same as `expected_bandwidth`, whose unit it names."""
        return self.expected_bandwidth

    @property
    def expected_bandwidth(self) -> float:
        """10^9 bytes of DRAM traffic a second, in the estimated time."""
        return self.dram_bytes / self.estimated_time / 1e9 if self.estimated_time else 0.0


class Analyzer:
    """`Analyzer.analysis(func, arch)` counts what a program does."""

    @staticmethod
    def analysis(func: Any, arch: Any = DEFAULT_CUDA, dynamic_symbolic_constraints: Any = None) -> Analysis:
        """Counts of `func`, a PrimFunc, a module with one or a compiled kernel, and their least time on `arch`.

        `arch` is an Arch, its name, or a device model of `tilelang.carver.arch`.

        `dynamic_symbolic_constraints` gives the sizes that are not known yet, {"m": 2048}. Raises ValueError where a
        trip count needs one that is missing, or depends on the data.
        """
        program, where = getattr(func, "prim_func", func), arch_of(getattr(arch, "arch", arch))
        if isinstance(program, ir.IRModule) and len(program.functions) == 1:
            program = next(iter(program.functions.values()))
        if not isinstance(program, tirx.PrimFunc):
            raise TypeError(f"a T.prim_func or a compiled kernel is analysed, got {type(program).__name__}")
        sizes = _sizes(program, dynamic_symbolic_constraints or {})
        flops = moved = least = 0
        seconds, assumptions = 0.0, []
        for kernel in launches(program):
            counts = _Launch(kernel, sizes)
            counts.count()
            dram = sum(min(asked, _size_bytes(tensor, sizes, asked)) for tensor, asked in counts.bytes.items())
            busy = min(1.0, counts.blocks / where.num_sms)  # the share of the SMs that have a block
            arithmetic = sum(n / (_tflops(dtype, where) * 1e12 * busy) for dtype, n in counts.flops.items())
            seconds += max(arithmetic, dram / (where.dram_gbps * 1e9))
            flops, moved, least = flops + counts.flops.total(), moved + counts.bytes.total(), least + dram
            assumptions += counts.assumptions
        return Analysis(flops, moved, least, seconds, tuple(dict.fromkeys(assumptions)))


def _sizes(func: Any, given: Mapping[str, int]) -> dict[Any, int]:
    """Values of the scalar names of a program's parameters."""
    shapes = [e for p in func.params if hasattr(p.ty, "shape") for e in (*p.ty.shape, *p.ty.strides)]
    names = {v for e in [*shapes, *func.params] if isinstance(e, ir.Expr) for v in vars_in(e)}
    return {v: given[v.name] for v in names if v.name in given}


def _size_bytes(tensor: Any, sizes: Mapping[Any, int], unknown: int) -> int:
    try:
        return math.prod(int(evaluate(e, sizes)) for e in tensor.ty.shape) * bits_of(tensor) // 8
    except Opaque:
        return unknown


def _tflops(dtype: str, arch: Arch) -> float:
    """Dense peak rate of gemms of one type: 16-bit numbers set it, others run as often as they fit a register."""
    if dtype == "float64":
        return arch.tensor_tflops / 16
    if dtype == "float32":  # tf32
        return arch.tensor_tflops / 2
    twice = "int8" in dtype or ("float8" in dtype and arch.fp8)
    return arch.tensor_tflops * (2 if twice else 1)


@dataclass
class _Launch:
    """The counts of one launch."""

    kernel: Kernel
    sizes: Mapping[Any, int]
    flops: Counter[str] = field(default_factory=Counter)  # by the type of operand A
    bytes: Counter[Any] = field(default_factory=Counter)  # by tensor
    blocks: int = 1
    assumptions: list[str] = field(default_factory=list)

    def count(self) -> None:
        statements = list(walk_list(self.kernel.body))
        self.values = {s.var: s.value for s in statements if isinstance(s, tirx.Bind)}
        self.lanes = {iv.var for iv, _ in self.kernel.axes if iv.thread_tag.startswith("threadIdx")}
        self.visits = 0
        self.decisive = self._decisive(statements)
        axes = [
            (iv.var, self._int(e, self.sizes, "the grid")) for iv, e in self.kernel.axes if iv.var not in self.lanes
        ]
        self.blocks = math.prod(extent for _, extent in axes)
        some = [(var, extent) for var, extent in axes if var in self.decisive]
        alike = self.blocks // max(1, math.prod(extent for _, extent in some))
        if self.blocks:
            for index in itertools.product(*(range(extent) for _, extent in some)):
                self._run(self.kernel.body, dict(zip((v for v, _ in some), index)) | dict(self.sizes), alike, False)

    def _decisive(self, statements: list[Any]) -> set[Any]:
        """Names that trip counts, conditions and sizes of tiles depend on."""
        deciding: list[Any] = []
        for s in statements:
            if isinstance(s, tirx.For):
                deciding += [s.min, s.extent]
            elif isinstance(s, tirx.IfThenElse):
                deciding.append(s.condition)
            elif (op := TileOp.from_stmt(s)) is not None:
                deciding += [r.extent for region in op.regions(*_MOVES) for r in region.region]
        return {v for e in deciding if isinstance(e, ir.Expr) for v in vars_in(inlined(e, self.values))}

    def _run(self, stmts: list[Any], env: dict[Any, int], times: int, in_nest: bool) -> None:
        """Counts statements that run `times` times in each of the blocks that `env` stands for."""
        self.visits += 1
        if self.visits > _MOST_VISITS:
            raise ValueError(f"the analysis looks at no more than {_MOST_VISITS} blocks and iterations one by one")
        for s in stmts:
            if isinstance(s, tirx.For):
                self._loop(s, env, times, in_nest)
            elif isinstance(s, tirx.IfThenElse):
                self._branch(s, env, times, in_nest)
            elif isinstance(s, tirx.While):
                self.assumptions.append("the body of a while loop runs once")
                self._elements(s.condition, times, in_nest)
                self._run(bodies(s)[0], env, times, in_nest)
            elif (op := TileOp.from_stmt(s)) is not None:
                self._tile_op(op, env, times)
            elif inner := bodies(s):
                self._run(inner[0], env, times, in_nest)
            else:
                self._elements(s, times, in_nest)

    def _loop(self, loop: Any, env: dict[Any, int], times: int, in_nest: bool) -> None:
        extent = max(0, self._int(loop.extent, env, f"the trip count of {loop.loop_var.name}"))
        nest = in_nest or PARALLEL in loop.annotations
        if nest or loop.loop_var not in self.decisive:
            if extent:
                self._run(bodies(loop)[0], env, times * extent, nest)
            return
        first, step = self._int(loop.min, env, "the start of a loop"), self._int(loop.step or 1, env, "a step")
        for i in range(extent):
            self._run(bodies(loop)[0], {**env, loop.loop_var: first + i * step}, times, nest)

    def _branch(self, branch: Any, env: dict[Any, int], times: int, in_nest: bool) -> None:
        then, other = bodies(branch)
        self._elements(branch.condition, times, in_nest)
        try:
            self._run(then if evaluate(inlined(branch.condition, self.values), env) else other, env, times, in_nest)
        except Opaque:
            self.assumptions.append("conditions on data and on threads hold, and run for all threads")
            self._run(then, env, times, in_nest)

    def _tile_op(self, op: TileOp, env: dict[Any, int], times: int) -> None:
        if op.name == "gemm":
            rows, columns = (self._int(r.extent, env, "a tile") for r in list(op["c"].region)[-2:])
            depth = self._int(list(op["a"].region)[-2 if op.attrs["trans_a"] else -1].extent, env, "a tile")
            self.flops[dtype_of(op["a"].source)] += 2 * rows * columns * depth * times
        if op.name == "annotate_layout":
            return
        for accesses, ways in ((_MOVES[:2], 1), (_MOVES[2:], 2)):
            for region in op.regions(*accesses):
                if region.source.ty.storage_scope == GLOBAL:
                    size = math.prod(self._int(r.extent, env, "a tile") for r in region.region)
                    self.bytes[region.source] += ways * times * size * bits_of(region.source) // 8

    def _elements(self, stmt: Any, times: int, in_nest: bool) -> None:
        """Single elements: one an iteration of a T.Parallel nest, one a thread where the thread is in the index."""
        touched = [(load.source, load.indices) for load in loads_in(stmt)]
        if isinstance(stmt, tirx.BufferStore):
            touched.append((stmt.buffer, stmt.indices))
        for tensor, indices in touched:
            if tensor.ty.storage_scope == GLOBAL:
                threads = self.kernel.threads if not in_nest and self._by_thread(indices) else 1
                self.bytes[tensor] += times * threads * bits_of(tensor) // 8

    def _by_thread(self, indices: Any) -> bool:
        full = [inlined(i, self.values) for i in indices if isinstance(i, ir.Expr)]
        return any(self.lanes & vars_in(i) or collect(i, ir.TensorLoad) for i in full)

    def _int(self, expr: Any, env: Mapping[Any, int], what: str) -> int:
        expr = inlined(expr, self.values) if isinstance(expr, ir.Expr) else expr
        try:
            return int(evaluate(expr, env))
        except Opaque as error:
            raise ValueError(
                f"{what} is {expr}, which the text does not tell; dynamic_symbolic_constraints gives sizes"
            ) from error


_MOVES = (Access.READ, Access.WRITE, Access.UPDATE)
