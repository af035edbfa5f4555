# SPDX-License-Identifier: Apache-2.0
"""Arranges the columns of a product so that its accumulator is an operand of the next product as it stands.

Before:  copy(K[k * 128, 0], Ks, via=tma_load); gemm(Qs, Ks, S, trans_b=True)
         for i, j in T.Parallel(64, 128): P[i, j] = cast(S[i, j])                      P has 8 bits
         gemm(P, Vs, O)
After:   the same with pairs=2 on the copy and on the first gemm

Requires: level 1 with `inst` on gemms, `via` on copies and elementwise ops expanded.
Ensures:  `pairs` on the gemms that write such an accumulator, and on the copies of what they read as B: infer_layouts
          gives both layouts that are `arranged`, and the nest between the products stays within its threads.
Does not: touch the second product. Its sum runs over the columns in the order of the program.

A thread has two neighbouring columns of every 8 of an accumulator, and four neighbouring ones of every 16 of an 8-bit
operand. The order of the columns is that of the rows of B, and a copy engine that counts the rows of a tensor in two
dimensions brings them in any order of pairs. It does so where the rows of the tensor are proved to be whole groups of
pairs, so that what lies outside still reads as 0; elsewhere the operand moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm import sym, tirx

from tilelang.analysis.copies import MAX_TMA_RANK, bits_of, rows_and_columns
from tilelang.analysis.layouts.costs import movement
from tilelang.analysis.layouts.edges import Demand
from tilelang.analysis.layouts.extract import extract
from tilelang.analysis.layouts.program import Access, Gemm, Parallel, Program, Transfer, identity, tiles_of
from tilelang.analysis.layouts.rules import rules_of
from tilelang.ir.attrs import FRAGMENT
from tilelang.ir.stmts import Kernel, inlined, map_kernels, rebuild, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.layout import AnyLayout, NotStructured
from tilelang.layout.operands import column_pairs

__all__ = ["arrange_columns"]

_ROW_GROUP = 8  # rows of B in a group that a descriptor counts by


def arrange_columns(func: Any) -> Any:
    """The function with `pairs` on gemms and copies."""
    return map_kernels(func, _arrange)


def _arrange(kernel: Kernel) -> Kernel:
    if not any(_is_narrow_operand(TileOp.from_stmt(s)) for s in walk_list(kernel.body)):
        return kernel
    found = _Finder(kernel, extract(kernel)).run()
    if not found:
        return kernel

    def mark(stmt: Any) -> Any:
        op = TileOp.from_stmt(stmt)
        if op is None or op.name not in ("copy", "gemm"):
            return stmt
        pairs = found.get(op["c" if op.name == "gemm" else "dst"].source.name, 1)
        return stmt if pairs == 1 else make_tile_op(op.name, op.operands, {**op.attrs, "pairs": pairs}, op.span)

    return kernel.with_body(rebuild(kernel.body, mark))


def _is_narrow_operand(op: TileOp | None) -> bool:
    return op is not None and op.name == "gemm" and op.attrs["inst"] == "wgmma" and _pairs_of(op["a"].source) > 1


def _pairs_of(buffer: Any) -> int:
    """Pairs of columns in a register of the A operand that a fragment is; 1 for what is no fragment."""
    return column_pairs(bits_of(buffer)) if buffer.ty.storage_scope == FRAGMENT else 1


@dataclass
class _Finder:
    kernel: Kernel
    program: Program

    def run(self) -> dict[str, int]:
        """Accumulator or shared tile -> its pairs."""
        self.values = {s.var: s.value for s in walk_list(self.kernel.body) if isinstance(s, tirx.Bind)}
        gemms = [op for op in self.program.ops if isinstance(op, Gemm)]
        self.writers = {g.c.name: [x for x in gemms if x.c.name == g.c.name] for g in gemms}
        self.readers = {g.a.name: g for g in gemms if g.inst == "wgmma" and g.a.scope == "fragment"}
        wanted = {c: pairs for c in self.writers if (pairs := self.wanted(c)) > 1}
        while bad := [c for c in wanted if not all(self.can_arrange(g, wanted) for g in self.writers[c])]:
            for c in bad:
                del wanted[c]
        return wanted | {g.b.name: wanted[c] for c in wanted for g in self.writers[c]}

    def wanted(self, c: str) -> int:
        """The pairs by which all 8-bit operands that nests compute from an accumulator stay with their threads."""
        found: set[int] = set()
        for op in self.program.ops:
            if not isinstance(op, Parallel) or all(a.tile.name != c for a in op.accesses):
                continue
            for write in (a for a in op.accesses if a.write and a.tile.name in self.readers):
                found.add(self.pairs_between(op, write, c))
        return found.pop() if len(found) == 1 else 1

    def pairs_between(self, nest: Parallel, write: Access, c: str) -> int:
        reader = self.readers[write.tile.name]
        pairs = column_pairs(write.tile.bits)
        reads = [a for a in nest.accesses if a.tile.name == c and not a.write]
        loop = _demand(reader, "a")
        if loop is None or write.map is None or write.map.canonical != identity(loop.shape).canonical:
            return 1
        if pairs == 1 or any(a.map is None or a.inner for a in reads):
            return 1

        def moves(home: AnyLayout | None) -> bool:
            return home is None or any(movement(home, loop, a.map, False) for a in reads if a.map is not None)

        first = self.writers[c][0]
        return pairs if moves(_demand(first, "c")) and not moves(_demand(replace(first, pairs=pairs), "c")) else 1

    def can_arrange(self, gemm: Gemm, wanted: Mapping[str, int]) -> bool:
        """Can the columns of a gemm be arranged, when those of the accumulators `wanted` are?"""
        pairs, rows = wanted[gemm.c.name], gemm.shape[1]
        if gemm.inst != "wgmma" or gemm.trans_c or not gemm.trans_b or gemm.split[1] != 1:
            return False
        if gemm.b.scope != "shared" or gemm.b.pinned or gemm.c.pinned or gemm.b.shape != (rows, gemm.shape[2]):
            return False
        if rows % (_ROW_GROUP * pairs):
            return False
        for op in self.program.ops:
            if all(t.name != gemm.b.name for t in tiles_of(op)):
                continue
            match op:
                case Gemm():
                    if op.a.name == gemm.b.name or wanted.get(op.c.name) != pairs:
                        return False
                case Transfer():
                    if not self.brings_pairs(TileOp.from_stmt(self.program.sites[op.key]), pairs):
                        return False
                case _:
                    return False
        return True

    def brings_pairs(self, op: TileOp | None, pairs: int) -> bool:
        """Can the copy engine bring the rows of a load arranged?"""
        if op is None or op.name != "copy" or op.attrs["via"] != "tma_load":
            return False
        src = op["src"]
        row, _ = rows_and_columns(src)
        if row is None or len(src.region) >= MAX_TMA_RANK:
            return False
        analyzer = sym.Analyzer()
        whole = (src.region[row].min, src.source.ty.shape[row])
        return all(analyzer.can_prove(tirx.floormod(inlined(x, self.values), 2 * pairs) == 0) for x in whole)


def _demand(gemm: Gemm, operand: str) -> AnyLayout | None:
    """The layout in which a gemm takes an operand; None where it has no such layout."""
    try:
        edges = rules_of(gemm)
    except NotStructured:
        return None
    return next((e.accept[0] for e in edges if isinstance(e, Demand) and e.operand == operand), None)
