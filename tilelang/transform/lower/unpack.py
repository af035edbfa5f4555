# SPDX-License-Identifier: Apache-2.0
"""Small integers to floating point, or to bytes, a whole 32-bit register at a time.

    W[i, j] = float16((packed[i, j // 2] >> (j % 2 * 4)) & 15)

reads four bits of a byte per lane. Lanes that lie in one register are computed together: a byte permutation brings the
bytes to their lanes, one mask leaves the bits of each, and the exponent that makes them the mantissa of 1024 comes with
the same operation. (1024 + q * 2^d) * 2^-d - 1024 * 2^-d is q exactly: one fma for both lanes, whatever offset the
program adds to q included. What the program puts into the bits of a float itself needs no fma.

Elements that a thread reads from shared memory bytes at a time are read in words of up to 16 bytes in front of the
loop; the byte that belongs to a thread is chosen by the permutation. Constants that many registers need are held in
registers as well: an instruction takes one constant, and ptxas would move the other to a register for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import tvm_ffi
from tvm import DataType, ir, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import buffers_in, dtype_of, shape_of
from tilelang.ir.walk import called, collect
from tilelang.transform.lower.bit_lanes import Bit, BitReader, Bits, Field, Source
from tilelang.transform.lower.context import Expr, LowerContext, Stmt, const, is_shared
from tilelang.transform.lower.numeric import Fit, Unknown, evaluate, fit, mentions, split
from tilelang.transform.lower.slots import Slots

__all__ = ["Pack", "Unpacking", "find_packs", "may_pack"]

_WORD = 32
_WIDE_BYTES = (16, 8, 4)
_PRELOAD_BYTES = 256  # of registers that words read in front of a loop may take
_ALL_BYTES = 0x1111
_HELD_FROM = 8  # registers of results in a loop, from which on their constants are worth registers of their own
_POINTERS = ("tirx.address_of", "tirx.buffer_data", "tirx.tvm_access_ptr")  # something may be written through them

At = Callable[[int], Any]  # lane of a register -> the translator of its slot


@dataclass(frozen=True)
class _Float:
    """A 16-bit type: `one` is the code of 2^mantissa, whose last bit is worth 1."""

    one: int
    mantissa: int
    suffix: str
    numpy: Any


_FLOATS = {
    "float16": _Float(0x6400, 10, "f16x2", np.float16),
    "bfloat16": _Float(0x4300, 7, "bf16x2", ml_dtypes.bfloat16),
}
_BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class Wide:
    """The elements of a load as words: `count` chunks of `chunk` elements, read in front of the loop."""

    load: Any
    chunk: int
    slots: tuple[int, ...]  # one that reads each chunk
    temp: Any
    words: Any


@dataclass(frozen=True)
class _Word:
    """A 32-bit value that lanes take bits from: a word read in front of the loop, or the loaded element itself."""

    source: int
    lane: int  # of the element, where it is loaded in the loop
    register: bytes = b""  # else: the index into `words` for each register of results


@dataclass(frozen=True)
class _Place:
    """Where a source lies in its words: bit `start[lane]` + 8 * (thread part + slot part)."""

    words: tuple[_Word, ...]  # for each lane
    start: tuple[int, ...]
    thread: Fit | None  # bytes
    slot: Fit | None  # bytes
    turn: Fit | None  # bits that a thread shifts its words by first
    registers: tuple[Fit, ...] = ()  # index into `words` for each lane, of the register's number
    wide: Wide | None = None
    most: int = 0  # bytes that the parts may add

    @property
    def moves(self) -> bool:
        return self.thread is not None or self.slot is not None


@dataclass
class _Take:
    """One permutation: byte k of the result is byte `byte` of a shifted word.

    `masks`: the bits that count of the result, when it is shifted right by each amount (left, if it is negative).
    """

    bytes: dict[int, tuple[tuple[_Word, int], int]]
    masks: dict[int, int]


@dataclass
class _Register:
    """How one register of results is computed."""

    takes: list[_Take]
    flips: int  # what is xor-ed with the bits
    scale: tuple[float, ...] = ()  # of each lane, where an fma follows
    addend: tuple[float, ...] = ()
    minus: int = 0  # what is subtracted from all bytes


@dataclass
class Pack:
    """A value of the body that is computed for `span` slots at a time; items of the body read it from `results`."""

    dtype: str
    span: int
    results: Any
    words: Any
    registers: list[_Register]
    places: dict[int, _Place]
    sources: Sequence[Source]
    held: dict[int, Any] = field(default_factory=dict)  # constants that variables have

    def constants(self) -> list[int]:
        """The constants that every register of the loop needs."""
        out = [mask for r in self.registers for take in r.takes for mask in take.masks.values()]
        for r in self.registers:
            out += [r.flips] if r.flips else []
            out += [_codes(x, _FLOATS[self.dtype]) for x in (r.scale, r.addend) if x]
        return out

    def _constant(self, value: int) -> Expr:
        return self.held.get(value, _u32(value))

    def emit(self, ctx: LowerContext, at: At, number: Expr, first: int) -> list[Stmt]:
        """The statements of span `number` of the loop, whose results are the registers from `first` on."""
        return [
            tirx.BufferStore(self.words, self._value(ctx, register, at, number), [const(first + k)])
            for k, register in enumerate(self.registers)
        ]

    def _value(self, ctx: LowerContext, register: _Register, at: At, number: Expr) -> Expr:
        bits: Any = None
        for take in register.takes:
            whole = self._permuted(ctx, take, at, number)
            for shift, mask in take.masks.items():
                part = _shifted(whole, shift) & self._constant(mask)
                bits = part if bits is None else bits ^ part
        bits = bits ^ self._constant(register.flips) if register.flips else bits
        if register.scale:
            kind = _FLOATS[self.dtype]
            codes = (_codes(x, kind) for x in (register.scale, register.addend))
            bits = device_op(f"fma2_{kind.suffix}", bits, *(self._constant(c) for c in codes))
        if register.minus:  # the top bit of every byte is set: nothing is borrowed from the next one
            bits = (bits - _u32(register.minus)) ^ _u32(0x80808080)
        return bits

    def _permuted(self, ctx: LowerContext, take: _Take, at: At, number: Expr) -> Expr:
        variants = list(dict.fromkeys(v for v, _ in take.bytes.values()))
        values = [self._word(ctx, word, turn, at, number) for word, turn in variants]
        place = self.places[variants[0][0].source]
        selector = 0
        for k in range(4):
            variant, byte = take.bytes.get(k, (variants[0], k if not place.moves else 0))
            selector |= (4 * variants.index(variant) + byte) << 4 * k
        if selector == 0x3210 and not place.moves:
            return values[0]
        chosen: Any = _u32(selector)
        parts = [f(x) for f, x in ((place.thread, ctx.thread), (place.slot, number)) if f is not None]
        for part in parts:
            chosen = chosen + tirx.Cast("uint32", part) * _u32(_ALL_BYTES)
        return device_op("permute_bytes", values[0], values[-1], chosen)

    def _word(self, ctx: LowerContext, word: _Word, turn: int, at: At, number: Expr) -> Expr:
        place = self.places[word.source]
        if place.wide is not None:
            index = place.registers[word.lane](number)
            value: Any = place.wide.words[const(index) if isinstance(index, int) else index]
        else:
            value = tirx.Cast("uint32", at(word.lane)(self.sources[word.source].load))
        if place.turn is not None:
            value = value >> tirx.Cast("uint32", place.turn(ctx.thread))
        return _shifted(value, turn)


@dataclass
class Unpacking:
    """The packs of a loop body and the words that they read in front of the loop."""

    items: list[tuple[tuple[Expr, ...], Stmt]]
    packs: list[Pack]
    wides: list[Wide]
    lane: Any  # the variable that stands for the slot in a group, in what the items read from packs
    span: int  # slots that a group must have at least
    count: int  # registers of results in the loop

    def preload(self, ctx: LowerContext, translator: Callable[[int], Any]) -> list[Stmt]:
        """Statements in front of the loop; `translator` is the one of a slot."""
        out: list[Stmt] = []
        if self.count >= _HELD_FROM:
            values = dict.fromkeys(c for pack in self.packs for c in pack.constants())
            held = {c: tirx.Var("held", "uint32") for c in values}
            out += [tirx.Bind(var, device_op("held", _u32(c))) for c, var in held.items()]
            for pack in self.packs:
                pack.held = held
        for wide in self.wides:
            out += [tirx.AllocBuffer(wide.temp), tirx.DeclBuffer(wide.words, data=wide.temp.data)]
            flat = ctx.shared[wide.load.source]
            for k, slot in enumerate(wide.slots):
                at = translator(slot)
                start = ctx.shared_index(wide.load.source, [at(x) for x in wide.load.indices], wide.chunk)
                if getattr(ctx.layout(wide.load.source), "swizzle", None) is None:
                    start = ctx.analyzer.simplify(tirx.floordiv(start, const(wide.chunk))) * wide.chunk
                v = tirx.Var("v", "int32")
                copy = tirx.BufferStore(wide.temp, flat[start + v], [v + k * wide.chunk])
                out.append(tirx.For(v, const(0), const(wide.chunk), tirx.ForKind.VECTORIZED, copy))
        return out

    def group(self, ctx: LowerContext, at: Callable[[Any], Any], group: Expr, width: int) -> list[Stmt]:
        """Statements that compute all packs of a group of `width` slots."""
        out: list[Stmt] = []
        for pack in self.packs:
            out += [tirx.AllocBuffer(pack.results), tirx.DeclBuffer(pack.words, data=pack.results.data)]
            count = width // pack.span
            for k in range(count):
                number = group * count + k if count > 1 else group

                def lane(n: int, first: int = k * pack.span) -> Any:
                    return at(const(first + n))

                out += pack.emit(ctx, lane, number, k * len(pack.registers))
        return out


def may_pack(body: Stmt) -> bool:
    """Is there a value in a loop body that might be packed? A quick look."""
    return bool(collect(body, (tirx.Cast, ir.Call), lambda node: bool(_target(node, True))))


def find_packs(
    ctx: LowerContext,
    slots: Slots,
    variables: Sequence[Any],
    items: list[tuple[tuple[Expr, ...], Stmt]],
    limit: int,
    preload: bool,
) -> Unpacking | None:
    """The values of a loop body that are computed in whole registers; None where there are none.

    `limit`: slots in a row that differ in one loop variable only. `preload`: there may be statements in front of the
    loop.
    """
    if not bool(np.all(slots.valid)):
        return None
    finder = _Finder(ctx, slots, variables, items, limit, preload)
    new = [(guards, finder.rewritten(stmt) if not guards else stmt) for guards, stmt in items]
    if not finder.packs:
        return None
    span = max(p.span for p in finder.packs)
    count = sum(slots.count // p.span * len(p.registers) for p in finder.packs)
    return Unpacking(new, finder.packs, finder.wides, finder.lane, span, count)


class _Finder:
    def __init__(
        self,
        ctx: LowerContext,
        slots: Slots,
        variables: Sequence[Any],
        items: list[tuple[tuple[Expr, ...], Stmt]],
        limit: int,
        preload: bool,
    ) -> None:
        self.ctx, self.slots, self.variables, self.limit, self.preload = ctx, slots, variables, limit, preload
        self.stored = {s.buffer for _, stmt in items for s in collect(stmt, tirx.BufferStore)}
        for call in (c for _, stmt in items for c in collect(stmt, ir.Call)):
            if getattr(call.op, "name", "") in _POINTERS:
                self.stored |= buffers_in(call)
        self.definitions = {s.var: s.value for _, s in items if isinstance(s, tirx.Bind)}
        self.packs: list[Pack] = []
        self.wides: list[Wide] = []
        self.lane = tirx.Var("s", "int32")
        self.sources: list[Source] = []
        self.places: dict[tuple[int, int], _Place] = {}

    def rewritten(self, stmt: Stmt) -> Stmt:
        """The statement with packed values read from their results."""
        if isinstance(stmt, tirx.Bind):
            value = self._replaced(stmt.value, whole=False)
            return stmt if value is stmt.value else tirx.Bind(stmt.var, value, span=stmt.span)
        if isinstance(stmt, tirx.BufferStore):
            value = self._replaced(stmt.value, whole=True)
            return stmt if value is stmt.value else tirx.BufferStore(stmt.buffer, value, stmt.indices, span=stmt.span)
        return stmt

    def _replaced(self, value: Expr, whole: bool) -> Expr:
        found = self._pack(value, whole)
        if found is not None:
            return found

        def visit(node: Any, mutator: Any) -> Any:
            if isinstance(node, tirx.Select) or called(node) == "prim.if_then_else":
                return node  # what one of the arms reads may not be there otherwise
            got = self._pack(node, False)
            return got if got is not None else mutator.default_mutate(node)

        return tvm_ffi.structural_mutate(value, [((tirx.Cast, tirx.Select, ir.Call), visit)])

    def _pack(self, node: Any, whole: bool) -> Any:
        dtype = _target(node, whole)
        if not dtype:
            return None
        if not collect(node, ir.TensorLoad) and not any(v in self.definitions for v in collect(node, ir.Var)):
            return None
        span = _WORD // DataType(dtype).bits
        while span <= self.limit:  # the bits may stand otherwise in the next register
            try:
                pack = self._built(node, dtype, span)
            except Unknown:
                span *= 2
                continue
            self.packs.append(pack)
            return pack.results[self.lane]
        return None

    def _built(self, node: Any, dtype: str, span: int) -> Pack:
        env, shape = self._env(span), self._shape(span)

        def reader(lane: int) -> BitReader:
            def value(expr: Any) -> int | None:
                try:
                    got = np.asarray(evaluate(expr, env))
                except Unknown:
                    return None
                part = np.broadcast_to(got, shape)[..., lane]
                return int(part.flat[0]) if np.all(part == part.flat[0]) else None

            return BitReader(value, self.definitions, self.sources)

        lanes = _WORD // DataType(dtype).bits
        registers = [range(first, first + lanes) for first in range(0, span, lanes)]
        inner = node.args[0] if isinstance(node, ir.Call) else node.value
        if isinstance(node, ir.Call):
            read: list[Any] = [reader(n).bits(inner) for n in range(span)]
            built = [self._assembled(span, {n: read[n] for n in register}, 0) for register in registers]
        else:
            make = self._bytes if dtype in _BYTES else self._floats
            read = [reader(n).field(inner) for n in range(span)]
            built = [make(dtype, span, {n: read[n] for n in register}) for register in registers]
        used = {word.source for r in built for take in r.takes for (word, _), _ in take.bytes.values()}
        places = {n: self._place(n, span) for n in used}
        alike = all(len(set(zip(p.words, p.start, strict=True))) == 1 for p in places.values())
        if alike and all(x == read[0] for x in read):
            raise Unknown("all lanes read the same bits")
        results = tirx.decl_buffer((self.limit,), dtype, "unpacked", scope=attrs.LOCAL, layout=None)
        words = tirx.decl_buffer((self.limit // lanes,), "uint32", "unpacked_words", scope=attrs.LOCAL, layout=None)
        self.wides += [p.wide for p in places.values() if p.wide is not None and p.wide not in self.wides]
        return Pack(dtype, span, results, words, built, places, self.sources)

    def _floats(self, dtype: str, span: int, fields: dict[int, Field]) -> _Register:
        kind = _FLOATS[dtype]
        options = [self._shifts(f.bits, span, n, kind) for n, f in fields.items()]
        best: _Register | None = None
        for shifts in product(*options):
            bits = {n: (*(0 for _ in range(d)), *f.bits) for d, (n, f) in zip(shifts, fields.items(), strict=True)}
            try:
                register = self._assembled(span, bits, kind.one)
            except Unknown:
                continue
            if best is None or _price(register.takes) < _price(best.takes):
                best = register
                best.scale = tuple(2.0**-d for d in shifts)
                one = float(1 << kind.mantissa)
                best.addend = tuple(f.offset - one * x for x, f in zip(best.scale, fields.values(), strict=True))
        if best is None:
            raise Unknown("no place in a mantissa")
        ends = [end for f in fields.values() for end in f.range]
        if any(float(kind.numpy(x)) != x for x in (*best.addend, *best.scale, *ends)):
            raise Unknown("not exact")
        if max(map(abs, ends)) > 2 << kind.mantissa:
            raise Unknown("not exact between the ends")
        return best

    def _shifts(self, bits: Bits, span: int, lane: int, kind: _Float) -> list[int]:
        """How far to the left a lane's bits may stand: at their place in a byte, or at the lowest bit."""
        first = next((k for k, b in enumerate(bits) if isinstance(b, Bit)), None)
        if first is None or len(bits) > kind.mantissa:
            raise Unknown("too many bits")
        bit = bits[first]
        start = self._place(bit.source, span).start[lane] + bit.index
        return sorted({d for d in (0, (start - first) % 8) if d + len(bits) <= kind.mantissa})

    def _bytes(self, dtype: str, span: int, fields: dict[int, Field]) -> _Register:
        ends = [end for f in fields.values() for end in f.range]
        least = -128 if dtype == "int8" else 0
        if min(ends) < least or max(ends) > least + 255:
            raise Unknown("it wraps around")
        bits = {n: f.bits for n, f in fields.items()}
        if all(f.offset == 0 for f in fields.values()):
            return self._assembled(span, bits, 0)
        if any(len(f.bits) > 7 or not -128 <= f.offset <= 0 for f in fields.values()):
            raise Unknown("no room for an offset")
        register = self._assembled(span, bits, 0x80)
        register.minus = sum(-f.offset << 8 * k for k, f in enumerate(fields.values()))
        return register

    def _assembled(self, span: int, bits: dict[int, Bits], more: int) -> _Register:
        """The register whose lanes have the bits `bits`, and those of `more`."""
        size = _WORD // len(bits)
        flips, wanted = 0, {}
        for k, (lane, lane_bits) in enumerate(bits.items()):
            if any(b != 0 for b in lane_bits[size:]):
                raise Unknown("it does not fit a lane")
            flips ^= more << size * k
            for n, bit in enumerate(lane_bits[:size]):
                at = size * k + n
                if isinstance(bit, Bit):
                    wanted[at] = (bit, lane)
                    flips ^= int(bit.inverted) << at
                else:
                    flips ^= bit << at
        if not wanted:
            raise Unknown("a constant")
        for source in {bit.source for bit, _ in wanted.values()}:
            shift = self.sources[source].shift
            most = int(np.max(evaluate(shift, self._env(span)))) if shift is not None else 0
            top = max(bit.index for bit, _ in wanted.values() if bit.source == source)
            if top + most >= DataType(dtype_of(self.sources[source].load)).bits:
                raise Unknown("a bit that is shifted in")
        return _Register(_takes(wanted, {b.source: self._place(b.source, span) for b, _ in wanted.values()}), flips)

    # -- where sources lie
    def _shape(self, span: int) -> tuple[int, int, int]:
        return self.slots.threads, self.slots.count // span, span

    def _env(self, span: int) -> dict[Any, np.ndarray]:
        shape = self._shape(span)
        return {v: x.reshape(shape) for v, x in zip(self.variables, self.slots.index, strict=True)}

    def _place(self, source: int, span: int) -> _Place:
        if (span, source) not in self.places:
            self.places[span, source] = self._found(source, span)
        return self.places[span, source]

    def _found(self, source: int, span: int) -> _Place:
        load, shift = self.sources[source]
        env = self._env(span)
        shape = self._shape(span)
        if self.stored & {load.source, *(x.source for i in load.indices for x in collect(i, ir.TensorLoad))}:
            raise Unknown("what is read changes")
        offset = np.broadcast_to(np.asarray(evaluate(shift, env) if shift is not None else 0), shape)
        wide = self._wide(source, span, env, shape)
        if wide is not None:
            found, register, byte = wide
            place = self._parted(offset + 8 * byte)
            words = tuple(_Word(source, n, register[:, n].tobytes()) for n in range(span))
            same = {w.register: w for w in reversed(words)}
            registers = tuple(fit(register[:, n], (shape[1],)) for n in range(span))
            return _Place(tuple(same[w.register] for w in words), *place, registers, found, self._most(place, span))
        first = []  # the lane whose element a lane shares
        values = [split(x, env) for x in load.indices]
        if any(mentions(e, env) for _, rest in values for e in rest):
            raise Unknown("an index that cannot be followed")
        full = [np.broadcast_to(np.asarray(v), shape) for v, _ in values]
        for n in range(span):
            first.append(next(m for m in range(n + 1) if all(np.array_equal(v[..., m], v[..., n]) for v in full)))
        place = self._parted(offset)
        return _Place(tuple(_Word(source, m) for m in first), *place, most=self._most(place, span))

    def _parted(self, offset: np.ndarray) -> tuple[tuple[int, ...], Fit | None, Fit | None, Fit | None]:
        """(start of each lane, thread part in bytes, slot part in bytes, thread part in bits) of bit offsets."""
        base = int(offset[0, 0, 0])
        lane, thread, slot = offset[0, 0, :], offset[:, 0, 0] - base, offset[0, :, 0] - base
        if np.any(offset != thread[:, None, None] + slot[None, :, None] + lane[None, None, :]):
            raise Unknown("threads and slots are no sum")
        if np.any(thread < 0) or np.any(slot < 0) or np.any(slot % 8):
            raise Unknown("a slot starts inside a byte")
        start = tuple(int(x) for x in lane)
        slots = fit(slot // 8, slot.shape) if np.any(slot) else None
        if np.any(thread % 8):
            return start, None, slots, fit(thread, thread.shape)
        return start, fit(thread // 8, thread.shape) if np.any(thread) else None, slots, None

    def _most(self, place: tuple[Any, ...], span: int) -> int:
        _, thread, slot, _ = place
        most = 0
        for part, count in ((thread, self.slots.threads), (slot, self.slots.count // span)):
            most += max(part(k) for k in range(count)) if part is not None else 0
        return most

    def _wide(
        self, source: int, span: int, env: dict[Any, np.ndarray], shape: tuple[int, int, int]
    ) -> tuple[Wide, np.ndarray, np.ndarray] | None:
        """(words, index into them for each register and lane, byte in the word); None where elements stay apart."""
        load = self.sources[source].load
        if not self.preload or not is_shared(load.source) or load.source not in self.ctx.shared:
            return None
        layout, flat = self.ctx.layout(load.source), self.ctx.shared[load.source]
        if not hasattr(layout, "digits"):
            return None
        lead = len(load.indices) - len(layout.shape)
        size = DataType(dtype_of(load)).bits // 8
        versions = shape_of(load.source)[0] if lead else 1
        if any(mentions(x, env) for x in load.indices[:lead]) or shape_of(flat)[0] // versions * size % _WIDE_BYTES[0]:
            return None
        try:
            index = [np.broadcast_to(np.asarray(evaluate(x, env)), shape) for x in load.indices[lead:]]
        except Unknown:
            return None
        at = np.broadcast_to(np.asarray(layout.apply(*index)["addr"]), shape) * size
        swizzle = getattr(layout, "swizzle", None)
        for chunk in _WIDE_BYTES:
            count = chunk // size
            if count < 2 or (swizzle is not None and 1 << swizzle.base < count):
                continue
            lines = (at // chunk).reshape(shape[0], -1)
            _, first, number = np.unique(lines, axis=1, return_index=True, return_inverse=True)
            word = at % chunk // 4
            few = len(first) * chunk <= _PRELOAD_BYTES and len(first) < len(np.unique(at[0]))
            if not few or np.any(word != word[:1]):
                continue
            order = np.argsort(first)  # of the slots
            rank = np.argsort(order)
            register = rank[number.reshape(shape[1:])] * (chunk // 4) + word[0]
            slots = tuple(int(x) for x in first[order])
            same = next((w for w in self.wides if w.slots == slots and w.chunk == count and _equal(w.load, load)), None)
            if same is None:
                elements = len(first) * count
                temp = tirx.decl_buffer(
                    (elements,), dtype_of(load), f"{load.source.name}_w", scope=attrs.LOCAL, layout=None
                )
                words = tirx.decl_buffer(
                    (elements * size // 4,), "uint32", f"{temp.name}ords", scope=attrs.LOCAL, layout=None
                )
                same = Wide(load, count, slots, temp, words)
            return same, register, at % 4
        return None


Wanted = dict[int, tuple[Bit, int]]  # bit of a register -> the bit that it is, of which lane


def _takes(wanted: Wanted, places: dict[int, _Place]) -> list[_Take]:
    """The permutations, masks and shifts that bring every bit to its place, with few instructions."""
    options: list[list[_Take]] = []
    for make in (lambda: _permutations(wanted, places), *(lambda n=n: _moved_later(wanted, places, n) for n in (0, 1))):
        try:
            options.append(make())
        except Unknown:
            continue
    if not options:
        raise Unknown("a bit outside the word")
    return min(options, key=_price)


def _moved_later(wanted: Wanted, places: dict[int, _Place], reference: int) -> list[_Take]:
    """One permutation that brings the bits of a lane to the place of one of its fields, whence shifts bring the other
    fields, by the same amounts in all lanes, to theirs."""
    fields: dict[int, dict[int, dict[int, int]]] = {}  # lane -> distance -> position -> where the bit starts
    for at, (bit, lane) in wanted.items():
        start = places[bit.source].start[lane] + bit.index
        fields.setdefault(lane, {}).setdefault(at - start, {})[at] = start
    moves = {lane: sorted(by_distance) for lane, by_distance in fields.items()}
    amounts = {tuple(d[reference : reference + 1] and [d[reference] - x for x in d]) for d in moves.values()}
    if len(amounts) != 1 or len(next(iter(amounts))) < 2:
        raise Unknown("fields that do not move alike")
    brought: Wanted = {}
    masks: dict[int, int] = {}
    for lane, distances in moves.items():
        for distance in distances:
            shift = distances[reference] - distance
            for at in fields[lane][distance]:
                if not 0 <= at + shift < _WORD or at + shift in brought:
                    raise Unknown("no room")
                brought[at + shift] = wanted[at]
                masks[shift] = masks.get(shift, 0) | 1 << at
    takes = _permutations(brought, places)
    if len(takes) != 1:
        raise Unknown("more than one permutation")
    return [_Take(takes[0].bytes, masks)]


def _permutations(wanted: Wanted, places: dict[int, _Place]) -> list[_Take]:
    """Permutations of shifted words that bring every bit to its place."""
    left = set()  # (word, shift) of bits below the amount that a shift to the right would have
    for at, (bit, lane) in wanted.items():
        start = places[bit.source].start[lane] + bit.index
        if (start - at) % 8 > start:
            left.add((places[bit.source].words[lane], (start - at) % 8))
    takes: list[_Take] = []
    for at, (bit, lane) in sorted(wanted.items()):
        place = places[bit.source]
        start = place.start[lane] + bit.index
        turn = (start - at) % 8
        turn -= 8 if (place.words[lane], turn) in left else 0
        byte = (start - turn) // 8
        if byte + place.most > 3:
            raise Unknown("a bit outside the word")
        variant = (place.words[lane], turn)
        for take in takes:
            have = take.bytes.get(at // 8)
            variants = {v for v, _ in take.bytes.values()}
            alike = all(w.source == variant[0].source for w, _ in variants) or not any(
                places[w.source].moves for w in (variant[0], *(w for w, _ in variants))
            )
            if have == (variant, byte) or (have is None and alike and len(variants | {variant}) <= 2):
                break
        else:
            takes.append(take := _Take({}, {0: 0}))
        take.bytes[at // 8] = (variant, byte)
        take.masks[0] |= 1 << at
    return takes


def _price(takes: list[_Take]) -> float:
    """Instructions: permutations, masks and shifts; other registers may share the words that are shifted first."""
    turned = {v for take in takes for v, _ in take.bytes.values() if v[1]}
    later = sum(shift != 0 for take in takes for shift in take.masks)
    return len(takes) + sum(len(take.masks) for take in takes) + later + len(turned) / 2


def _target(node: Any, whole: bool) -> str:
    """The type of a value that may be packed."""
    if isinstance(node, ir.Call) and getattr(node.op, "name", "") == "tirx.reinterpret":
        source = dtype_of(node.args[0])
        return dtype_of(node) if dtype_of(node) in _FLOATS and source in ("int16", "uint16") else ""
    if isinstance(node, tirx.Cast) and dtype_of(node.value).startswith(("int", "uint")):
        dtype = dtype_of(node)
        return dtype if dtype in _FLOATS or (whole and dtype in _BYTES) else ""
    return ""


def _codes(values: tuple[float, ...], kind: _Float) -> int:
    low, high = (int(np.asarray(v).astype(kind.numpy).view(np.uint16)) for v in values)
    return low | high << 16


def _shifted(value: Expr, right: int) -> Expr:
    return value >> _u32(right) if right > 0 else value << _u32(-right) if right < 0 else value


def _u32(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _equal(a: Any, b: Any) -> bool:
    return bool(tvm_ffi.structural_equal(a, b))
