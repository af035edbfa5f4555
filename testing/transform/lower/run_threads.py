# SPDX-License-Identifier: Apache-2.0
"""Runs the per-thread code of one block on numpy: all threads in lock step, one array element per thread.

Small and strict: an active thread may not index out of range, a value is stored only in the buffer's type, two threads
may not store different values to one shared or global element in one instruction, and a shared element written by
another thread may be read only after a barrier."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from tvm import ir, tirx

from tilelang.ir.stmts import as_list, dtype_of

BARRIER = "test_barrier"
_OPS = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.fmin,
    tirx.Max: np.fmax,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.Div: lambda a, b: a / b if a.dtype.kind == "f" else np.trunc(a / b).astype(a.dtype),
}
_CALLS = {"exp": np.exp, "exp2": np.exp2, "isnan": np.isnan, "fabs": np.abs, "sqrt": np.sqrt}


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


def barrier() -> Any:
    return tirx.Evaluate(tirx.call_extern("int32", BARRIER))


class Threads:
    """`memory`: global and shared buffers (numpy arrays of their shape), updated in place."""

    def __init__(
        self, threads: int, thread: Any, memory: dict[Any, np.ndarray], scalars: dict[Any, int] | None = None
    ) -> None:
        self.n = threads
        self.memory = memory
        self.env: dict[Any, np.ndarray] = {thread: np.arange(threads, dtype=np.int32)}
        self.env |= {k: np.full(threads, v, np.int32) for k, v in (scalars or {}).items()}
        self.locals: dict[Any, np.ndarray] = {}
        self.mask = np.ones(threads, bool)
        self.epoch = 1
        self.writer: dict[Any, tuple[np.ndarray, np.ndarray]] = {}
        self.steps = {"vector": 0, "scalar": 0, "barrier": 0, "shuffle": 0}

    def run(self, stmt: Any) -> None:
        for s in as_list(stmt):
            getattr(self, "_" + type(s).__name__)(s)

    # -- statements
    def _AllocBuffer(self, s: Any) -> None:
        buffer = s.buffer
        size = math.prod(int(n) for n in buffer.ty.shape)
        if str(buffer.ty.storage_scope).startswith("local"):
            fill = np.nan if "float" in dtype_of(buffer) else 77
            self.locals[buffer] = np.full((size, self.n), fill).astype(numpy_type(dtype_of(buffer)))
        else:
            self.memory[buffer] = np.zeros(size, numpy_type(dtype_of(buffer)))

    def _Bind(self, s: Any) -> None:
        self.env[s.var] = np.broadcast_to(self.ev(s.value), self.n).copy()

    def _BufferStore(self, s: Any) -> None:
        value = np.broadcast_to(self.ev(s.value), self.n)
        assert dtype_of(s.value) == dtype_of(s.buffer), s
        index = [np.broadcast_to(self.ev(i), self.n)[self.mask] for i in s.indices]
        self._check(s.buffer, index)
        if s.buffer in self.locals:
            self.locals[s.buffer][index[0], np.flatnonzero(self.mask)] = value[self.mask]
            return
        array = self.memory[s.buffer]
        array[tuple(index)] = value[self.mask]
        back, put = array[tuple(index)], value[self.mask].astype(array.dtype)
        assert np.array_equal(back, put, equal_nan=array.dtype.kind == "f"), f"threads store different values: {s}"
        if str(s.buffer.ty.storage_scope).startswith("shared"):
            who, when = self._writers(s.buffer)
            who[tuple(index)], when[tuple(index)] = np.flatnonzero(self.mask), self.epoch

    def _writers(self, buffer: Any) -> tuple[np.ndarray, np.ndarray]:
        shape = self.memory[buffer].shape
        return self.writer.setdefault(buffer, (np.full(shape, -1), np.zeros(shape, int)))

    def _IfThenElse(self, s: Any) -> None:
        condition, mask = np.broadcast_to(self.ev(s.condition), self.n).astype(bool), self.mask
        self.mask = mask & condition
        if self.mask.any():
            self.run(s.then_case)
        self.mask = mask & ~condition
        if s.else_case is not None and self.mask.any():
            self.run(s.else_case)
        self.mask = mask

    def _For(self, s: Any) -> None:
        low, extent = (int(np.broadcast_to(self.ev(e), self.n)[self.mask].flat[0]) for e in (s.min, s.extent))
        self.steps["vector"] += s.kind == tirx.ForKind.VECTORIZED
        for k in range(low, low + extent):
            self.env[s.loop_var] = np.full(self.n, k, np.int32)
            self.run(s.body)

    def _AttrStmt(self, s: Any) -> None:
        self.run(s.body)

    def _Evaluate(self, s: Any) -> None:
        if isinstance(s.value, ir.Call):
            if any(getattr(a, "value", None) == BARRIER for a in s.value.args):
                assert self.mask.all(), "a barrier in divergent code"
                self.epoch += 1
                self.steps["barrier"] += 1
            else:
                self.ev(s.value)

    # -- expressions
    def ev(self, e: Any) -> np.ndarray:
        if isinstance(e, tirx.IntImm | tirx.FloatImm):
            return np.asarray(e.value).astype(numpy_type(dtype_of(e)))
        if isinstance(e, ir.Var):
            return self.env[e]
        if type(e) in _OPS:
            a, b = self.ev(e.a), self.ev(e.b)
            with np.errstate(all="ignore"):
                return np.asarray(_OPS[type(e)](a, b))
        if isinstance(e, tirx.Not):
            return ~self.ev(e.a)
        if isinstance(e, tirx.Cast):
            with np.errstate(all="ignore"):
                return self.ev(e.value).astype(numpy_type(dtype_of(e)))
        if isinstance(e, tirx.Select):
            return np.where(self.ev(e.condition), self.ev(e.true_value), self.ev(e.false_value))
        if isinstance(e, ir.TensorLoad):
            return self._read(e.source, e.indices)
        if isinstance(e, ir.Call):
            return self._call(e)
        raise AssertionError(type(e))

    def _call(self, e: Any) -> Any:
        name = e.op.name.split(".")[-1]
        if name == "if_then_else":
            condition, mask = np.broadcast_to(self.ev(e.args[0]), self.n).astype(bool), self.mask
            self.mask = mask & condition
            yes = np.broadcast_to(self.ev(e.args[1]), self.n)
            self.mask = mask & ~condition
            no = np.broadcast_to(self.ev(e.args[2]), self.n)
            self.mask = mask
            return np.where(condition, yes, no)
        if name in _CALLS:
            with np.errstate(all="ignore"):
                return _CALLS[name](self.ev(e.args[0]))
        return getattr(self, f"_op_{name}")(*e.args)

    def _read(self, buffer: Any, indices: Any) -> np.ndarray:
        index = [np.broadcast_to(self.ev(i), self.n) for i in indices]
        self._check(buffer, [i[self.mask] for i in index])
        if buffer in self.locals:
            array = self.locals[buffer]
            return array[np.clip(index[0], 0, len(array) - 1), np.arange(self.n)]
        array = self.memory[buffer]
        index = [np.clip(i, 0, n - 1) for i, n in zip(index, array.shape, strict=True)]
        if str(buffer.ty.storage_scope).startswith("shared"):
            who, when = (x[tuple(index)] for x in self._writers(buffer))
            assert not np.any((when == self.epoch) & (who != np.arange(self.n)) & self.mask), f"race on {buffer.name}"
        return array[tuple(index)]

    def _check(self, buffer: Any, index: list[np.ndarray]) -> None:
        shape = self.locals[buffer].shape[:1] if buffer in self.locals else self.memory[buffer].shape
        for i, n in zip(index, shape, strict=True):
            assert np.all((i >= 0) & (i < n)), f"{buffer.name}[{i}] out of range {n}"

    # -- device operations
    def _shuffle(self, value: Any, partner: np.ndarray, inside: np.ndarray) -> np.ndarray:
        x = np.broadcast_to(self.ev(value), self.n)
        warps = [self.mask[k : k + 32] for k in range(0, self.n, 32)]
        assert all(w.all() or not w.any() for w in warps), "shuffle in divergent code"
        self.steps["shuffle"] += 1
        inside = inside & (partner >= 0) & (partner < self.n)
        return np.where(inside, x[np.where(inside, partner, 0)], x)

    def _op_shfl_xor(self, _dtype: Any, _width: Any, _members: Any, value: Any, mask: Any) -> np.ndarray:
        partner = np.arange(self.n) ^ int(mask)
        return self._shuffle(value, partner, partner // 32 == np.arange(self.n) // 32)

    def _op_shfl_up(self, _dtype: Any, width: Any, _members: Any, value: Any, delta: Any) -> np.ndarray:
        lane = np.arange(self.n)
        return self._shuffle(value, lane - int(delta), lane % int(width) >= int(delta))

    def _op_shfl_idx(self, _dtype: Any, width: Any, _members: Any, value: Any, lane: Any) -> np.ndarray:
        at = np.arange(self.n) // int(width) * int(width) + int(lane)
        return self._shuffle(value, at, at < self.n)

    def _pointer(self, pointer: Any) -> tuple[Any, np.ndarray]:
        """(buffer, element index of every thread) of address_of(buffer[i])."""
        load = pointer.args[0]
        index = np.broadcast_to(self.ev(load.indices[0]), self.n)
        self._check(load.source, [index[self.mask]])
        return load.source, index

    def _elements(self, pointer: Any, count: int) -> np.ndarray:
        """`count` elements of a local array from a pointer on, [count, thread]."""
        buffer, index = self._pointer(pointer)
        return self.locals[buffer][index + np.arange(count)[:, None], np.arange(self.n)]

    def _op_cp_async(self, size: Any, _zfill: Any, dst: Any, src: Any, src_bytes: Any = None) -> None:
        buffer, first = self._pointer(dst)
        load = src.args[0]
        count = int(size) // self.memory[buffer].itemsize
        live = self.mask & (np.broadcast_to(self.ev(src_bytes), self.n) > 0 if src_bytes is not None else True)
        index = [np.broadcast_to(self.ev(i), self.n) for i in load.indices]
        assert np.all((first % count == 0)[self.mask]) and np.all((index[-1] % count == 0)[live])
        for e in range(count):
            at = [*index[:-1], index[-1] + e]
            self._check(load.source, [x[live] for x in at])
            self.memory[buffer][first[self.mask] + e] = 0
            self.memory[buffer][first[live] + e] = self.memory[load.source][tuple(x[live] for x in at)]

    def _op_uniform(self, value: Any) -> np.ndarray:
        x = np.broadcast_to(self.ev(value), self.n)
        assert all(len(set(x[k : k + 32])) == 1 for k in range(0, self.n, 32))
        return x

    def _ldmatrix(self, count: int, trans: Any, dst: Any, src: Any) -> None:
        buffer, first = self._pointer(dst)
        shared, address = self._pointer(src)
        per = 4 // self.locals[buffer].itemsize
        width = 16 // self.memory[shared].itemsize
        assert np.all(address % width == 0), "a matrix row is not aligned to 16 bytes"
        lane, warp = np.arange(self.n) % 32, np.arange(self.n) // 32 * 32
        for q in range(count):
            for e in range(per):
                if int(trans):
                    row, col = lane % 4 * 2 + e, lane // 4
                else:
                    row, col = lane // 4, lane % 4 * per + e
                at = address[warp + 8 * q + row] + col
                self.locals[buffer][first + q * per + e, np.arange(self.n)] = self.memory[shared][at]

    def _op_ldmatrix_x4(self, *args: Any) -> None:
        self._ldmatrix(4, *args)

    def _op_ldmatrix_x2(self, *args: Any) -> None:
        self._ldmatrix(2, *args)

    def _op_mma(self, _shape: Any, _a: Any, _b: Any, _acc: Any, d: Any, a: Any, b: Any) -> None:
        from tilelang.layout import operands as hw

        buffers = [self._pointer(x)[0] for x in (d, a, b)]
        bits = 8 * self.locals[buffers[1]].itemsize
        atoms = (hw.accumulator_atom(), hw.a_atom(bits), hw.b_atom(bits))
        tiles = []
        for pointer, atom in zip((d, a, b), atoms, strict=True):
            values = self._elements(pointer, atom.span("reg"))
            at, reg = atom.arrays["thread"][..., 0], atom.arrays["reg"][..., 0]
            tiles.append(np.stack([values[reg, at + k] for k in range(0, self.n, 32)]))
        wide = np.int64 if self.locals[buffers[0]].dtype.kind == "i" else np.float64
        out = tiles[0] + tiles[1].astype(wide) @ tiles[2].astype(wide)
        buffer, index = self._pointer(d)
        atom = atoms[0]
        at, reg = atom.arrays["thread"][..., 0], atom.arrays["reg"][..., 0]
        for k in range(0, self.n, 32):
            self.locals[buffer][index[at + k] + reg, at + k] = out[k // 32]
