# SPDX-License-Identifier: Apache-2.0
"""gemm on mma.sync: m16n8k(256 bits) instructions, operands from shared memory by ldmatrix, or from fragments.

Warps split C into (warps_m, warps_n) contiguous blocks, along M first. For each k step a warp loads its A blocks (16 x
k) and B blocks (k x 8) into registers and multiplies all pairs. A shared operand goes by ldmatrix when 16 bytes of a
matrix row lie together: rows along k for any width, rows along m or n by `.trans` for 16-bit elements; otherwise
element by element.

Register orders: PTX ISA 9.7.14.5 (mma) and 9.7.14.5.15 (ldmatrix), as in `tilelang.layout.operands`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import DataType, tirx

from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, const_int, dtype_of
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import operands as hw
from tilelang.layout import same
from tilelang.transform.lower.context import (
    Expr,
    LowerContext,
    LoweringError,
    Stmt,
    UnsupportedTileOp,
    const,
    is_fragment,
    is_shared,
)
from tilelang.transform.lower.translate import unrolled

__all__ = ["lower_gemm_mma"]

WARP = 32
MMA_M, MMA_N = 16, 8
MAX_STEPS = 8  # k steps that are unrolled whole
ROW_BITS = 128  # a row of an 8x8 matrix of ldmatrix


@dataclass(frozen=True)
class _Operand:
    """A or B: `trans` says that the buffer is (K, M) for A, (N, K) for B. Coordinates are (mn, k) of the region."""

    name: str
    buffer: Any
    lead: tuple[Expr, ...]
    start: tuple[Expr, Expr]  # of the last two dimensions
    k_inner: bool  # is k the last dimension of the buffer
    bits: int

    def index(self, mn: Expr, k: Expr) -> list[Expr]:
        pair = (mn, k) if self.k_inner else (k, mn)
        return [*self.lead, *(x if const_int(s) == 0 else s + x for s, x in zip(self.start, pair, strict=True))]


def lower_gemm_mma(op: TileOp, ctx: LowerContext) -> Stmt:
    """Per-thread code of one gemm; all threads of the context run it together.

    Raises UnsupportedTileOp for types without an instruction, LoweringError for shapes or layouts that do not fit.
    """
    return _Gemm(op, ctx).emit()


class _Gemm:
    def __init__(self, op: TileOp, ctx: LowerContext) -> None:
        self.op, self.ctx = op, ctx
        self.c = op["c"].source
        self.warps_m, self.warps_n = int(op.attrs["warps_m"]), int(op.attrs["warps_n"])
        self.a, self.b = _operand(op, "a", not op.attrs["trans_a"]), _operand(op, "b", op.attrs["trans_b"])
        self.m, self.n = (const_int(r.extent) or 0 for r in list(op["c"].region)[-2:])
        self.k = const_int(list(op["a"].region)[-1 if self.a.k_inner else -2].extent) or 0
        self.per_register = 32 // self.a.bits  # elements in a 32-bit register
        self.step = 256 // self.a.bits
        self.blocks_m, self.blocks_n = self.m // (MMA_M * self.warps_m), self.n // (MMA_N * self.warps_n)
        offset = dict(getattr(ctx.layout(self.c), "offset", ())).get("thread", 0)
        thread = ctx.thread - offset if offset else ctx.thread
        self.offset = offset
        self.lane = tirx.Var("lane", "int32")
        self.warp = tirx.Var("warp", "int32")
        self.prologue = [
            tirx.Bind(self.lane, thread % WARP),
            tirx.Bind(self.warp, device_op("uniform", thread // WARP)),
        ]
        self._check()

    def _check(self) -> None:
        """Shapes, types and the layouts of fragments."""
        op = self.op
        if self.a.bits != self.b.bits or self.a.bits not in (8, 16, 32):
            types = f"{dtype_of(self.a.buffer)} and {dtype_of(self.b.buffer)}"
            raise UnsupportedTileOp(span=op.span, what=f"mma on {types}", instead="cast the operands to one type")
        whole = (
            self.m % (MMA_M * self.warps_m) == 0 and self.n % (MMA_N * self.warps_n) == 0 and self.k % self.step == 0
        )
        if not whole or self.offset + self.warps_m * self.warps_n * WARP > self.ctx.threads:
            raise LoweringError(
                f"gemm {self.m}x{self.n}x{self.k} does not divide over {self.warps_m}x{self.warps_n} warps", op.span
            )
        warps = (self.warps_m, self.warps_n)
        expected = {"c": (self.c, hw.mma_accumulator(self.m, self.n, *warps))}
        for operand, layout in (
            (self.a, hw.mma_a(self.m, self.k, self.a.bits, *warps)),
            (self.b, hw.mma_b(self.k, self.n, self.b.bits, *warps)),
        ):
            straight = operand.k_inner == (operand.name == "a")
            expected[operand.name] = (operand.buffer, layout if straight else layout.transpose())
        for name, (buffer, layout) in expected.items():
            if is_fragment(buffer):
                want = layout.shift(thread=self.offset) if self.offset else layout
                got = self.ctx.layout(buffer)
                if not same(got, want if got.shape == want.shape else want.reshape(got.shape)):
                    raise LoweringError(f"{name} of mma lives in {got}, must be {want}", op.span)
            elif name == "c" or not is_shared(buffer):
                raise UnsupportedTileOp(
                    span=op.span,
                    what=f"mma cannot take {buffer.name} as {name}",
                    instead="copy it to shared memory or a fragment",
                )

    def emit(self) -> Stmt:
        out: list[Stmt] = [*self.prologue, *self._clear()]
        k = tirx.Var("k", "int32")
        body: list[Stmt] = []
        a = self._load(self.a, k, body)
        b = self._load(self.b, k, body)
        i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
        types = ["tf32" if dtype_of(x.buffer) == "float32" else dtype_of(x.buffer) for x in (self.a, self.b)]
        acc = self.ctx.register_file(self.c)[(i * self.blocks_n + j) * 4]
        mma = device_op(
            "mma",
            *(tirx.address_of(x) for x in (acc, a(i), b(j))),
            shape=f"m16n8k{self.step}",
            a_dtype=types[0],
            b_dtype=types[1],
            acc_dtype=dtype_of(self.c),
            span=self.op.span,
        )
        body.append(_loop(i, self.blocks_m, _loop(j, self.blocks_n, mma)))
        steps = self.k // self.step
        if steps <= MAX_STEPS or is_fragment(self.a.buffer) or is_fragment(self.b.buffer):
            out.append(_loop(k, steps, as_stmt(body)))
        else:
            notes = {"pragma_unroll": MAX_STEPS // 2}
            out.append(tirx.For(k, const(0), const(steps), tirx.ForKind.SERIAL, as_stmt(body), annotations=notes))
        return as_stmt(out)

    def _clear(self) -> list[Stmt]:
        clear = const_int(self.op["clear"])
        if clear == 0:
            return []
        registers = self.ctx.register_file(self.c)
        r = tirx.Var("r", "int32")
        zero = tirx.BufferStore(registers, tirx.const(0, dtype_of(self.c)), [r])
        fill = unrolled(r, self.blocks_m * self.blocks_n * 4, zero)
        return [fill if clear is not None else tirx.IfThenElse(self.op["clear"], fill, None)]

    # -- operands
    def _load(self, operand: _Operand, k: Any, out: list[Stmt]) -> Callable[[Expr], Expr]:
        """Appends the loads of step k; gives the first register element of block i (a) or j (b)."""
        registers = (4 if operand.name == "a" else 2) * self.per_register  # elements a thread holds of a block
        if is_fragment(operand.buffer):
            files, steps = self.ctx.register_file(operand.buffer), self.k // self.step
            return lambda block: files[(block * steps + k) * registers]
        blocks = self.blocks_m if operand.name == "a" else self.blocks_n
        temp = self.ctx.local(f"{operand.buffer.name}_{operand.name}", blocks * registers, dtype_of(operand.buffer))
        out.append(tirx.AllocBuffer(temp))
        if self._is_matrix(operand):
            out += self._matrices(operand, k, temp, blocks, registers)
        else:
            out.append(self._elements(operand, k, temp, blocks, registers))
        return lambda block: temp[block * registers]

    def _first(self, operand: _Operand) -> Expr:
        """First row (column) of C that this warp computes."""
        if operand.name == "a":
            return self.warp % self.warps_m * (MMA_M * self.blocks_m)
        return self.warp // self.warps_m * (MMA_N * self.blocks_n)

    def _is_matrix(self, operand: _Operand) -> bool:
        """Do 16 bytes along the last dimension lie together, from where the matrices start?"""
        width = ROW_BITS // operand.bits
        if not operand.k_inner and operand.bits != 16:
            return False
        layout = self.ctx.layout(operand.buffer)
        start = const_int(operand.start[-1])
        if start is None:
            found = self.ctx.analyzer.modular_set(operand.start[-1])
            aligned = found.coeff % width == 0 and found.base % width == 0
        else:
            aligned = start % width == 0
        return aligned and layout.vector_width("addr") % width == 0

    def _matrices(self, operand: _Operand, k: Any, temp: Any, blocks: int, registers: int) -> list[Stmt]:
        """ldmatrix: lane 8q + i points at row i of matrix q; matrix q fills register q."""
        matrix, row, half = self.lane // 8, self.lane % 8, self.step // 2
        if operand.name == "a":  # rows low/high, then k low/high
            mn, kk = matrix % 2 * 8, matrix // 2 * half
            groups = [(1, 0, blocks)]
        else:  # k low/high, then the next block of 8 columns
            mn, kk = matrix // 2 % 2 * 8, matrix % 2 * half
            groups = [(2, 0, blocks // 2), (1, blocks - blocks % 2, blocks % 2)]
        size = MMA_M if operand.name == "a" else MMA_N
        out = []
        for width, first, count in groups:
            if not count:
                continue
            block = tirx.Var("b", "int32")
            at = block * width + first
            here = self._first(operand) + at * size + (mn if operand.name == "a" or width == 2 else 0)
            where = (here + row, k * self.step + kk) if operand.k_inner else (here, k * self.step + kk + row)
            address = tirx.address_of(self.ctx.shared_load(operand.buffer, operand.index(*where)))
            name = f"ldmatrix_x{width * registers // self.per_register}"
            load = device_op(name, tirx.address_of(temp[at * registers]), address, trans=not operand.k_inner)
            out.append(_loop(block, count, load))
        return out

    def _elements(self, operand: _Operand, k: Any, temp: Any, blocks: int, registers: int) -> Stmt:
        """Plain loads in the order of the registers."""
        atom = hw.a_atom(operand.bits) if operand.name == "a" else hw.b_atom(operand.bits).transpose()
        block, e = tirx.Var("b", "int32"), tirx.Var("e", "int32")
        (mn, kk), _ = atom.locate(bounds=False, thread=self.lane, reg=e)
        size = MMA_M if operand.name == "a" else MMA_N
        where = (self._first(operand) + block * size + mn, k * self.step + kk)
        value = self.ctx.shared_load(operand.buffer, operand.index(*where))
        store = tirx.BufferStore(temp, value, [block * registers + e])
        return _loop(block, blocks, _loop(e, registers, store))


def _loop(var: Any, extent: int, body: Stmt) -> Stmt:
    return unrolled(var, extent, body)


def _operand(op: TileOp, name: str, k_inner: bool) -> _Operand:
    region = op[name]
    starts = [r.min for r in region.region]
    bits = DataType(dtype_of(region.source)).bits
    return _Operand(name, region.source, tuple(starts[:-2]), (starts[-2], starts[-1]), k_inner, bits)
