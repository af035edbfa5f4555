# SPDX-License-Identifier: Apache-2.0
"""Where the bits of an integer expression come from: which bit of which loaded element, or a constant.

`(packed[i, j // 2] >> (j % 2 * 4)) & 15` has four bits of the loaded byte and zeros above. An expression of masks,
shifts, casts and constants is known bit by bit; sums are known where no carry can happen, and a constant added to the
whole is kept beside the bits. What has no such form raises Unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm_ffi
from tvm import DataType, ir, tirx

from tilelang.ir.stmts import dtype_of
from tilelang.transform.lower.numeric import Unknown

__all__ = ["Bit", "BitReader", "Bits", "Field", "Source"]


class Source(NamedTuple):
    """A loaded element, shifted right by an amount that differs between threads, if any."""

    load: Any
    shift: Any = None


@dataclass(frozen=True)
class Bit:
    """Bit `index` of source number `source`, or its opposite."""

    source: int
    index: int
    inverted: bool = False

    def opposite(self) -> Bit:
        return Bit(self.source, self.index, not self.inverted)


Bits = tuple[Any, ...]  # lowest first: 0, 1 or a Bit


@dataclass(frozen=True)
class Field:
    """The integer sum(bits[k] << k) + offset."""

    bits: Bits
    offset: int = 0

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest value."""
        least = self.offset + sum(1 << k for k, b in enumerate(self.bits) if b == 1)
        return least, self.offset + sum(1 << k for k, b in enumerate(self.bits) if b != 0)


Value = Callable[[Any], int | None]  # of an expression in the lane that is looked at, None where it is not one number


class BitReader:
    """Reads expressions in one lane. `definitions` are those of the body's variables; `sources` grows as loads are met,
    and may be shared between lanes."""

    def __init__(self, value: Value, definitions: Mapping[Any, Any], sources: list[Source]) -> None:
        self.value, self.definitions, self.sources = value, definitions, sources

    def field(self, expr: Any) -> Field:
        """An integer expression as few bits and an offset, whatever its sign. Raises Unknown."""
        if isinstance(expr, ir.Var) and expr in self.definitions:
            return self.field(self.definitions[expr])
        if isinstance(expr, tirx.Add | tirx.Sub):
            constant = self.value(expr.b)
            if constant is not None:
                inner = self.field(expr.a)
                sign = 1 if isinstance(expr, tirx.Add) else -1
                return _fits(Field(inner.bits, inner.offset + sign * constant), expr)
            constant = self.value(expr.a) if isinstance(expr, tirx.Add) else None
            if constant is not None:
                inner = self.field(expr.b)
                return _fits(Field(inner.bits, inner.offset + constant), expr)
        if isinstance(expr, tirx.Cast) and _is_integer(expr) and _is_integer(expr.value):
            try:
                return _fits(self.field(expr.value), expr)
            except Unknown:  # it wraps around
                pass
        return _signed(self.bits(expr), dtype_of(expr))

    def bits(self, expr: Any) -> Bits:
        """The bits of an integer expression, as many as its type has. Raises Unknown."""
        if not _is_integer(expr):
            raise Unknown("no integer")
        width = DataType(dtype_of(expr)).bits
        known = self.value(expr)
        if known is not None:
            return _constant(known, width)
        if isinstance(expr, ir.Var) and expr in self.definitions:
            return self.bits(self.definitions[expr])
        if isinstance(expr, ir.TensorLoad):
            return tuple(Bit(self._source(expr), k) for k in range(width))
        rule = _RULES.get(type(expr))
        if rule is None:
            raise Unknown(type(expr).__name__)
        return rule(self, expr, width)

    def _cast(self, expr: Any, width: int) -> Bits:
        inner = self.bits(expr.value)
        fill = inner[-1] if dtype_of(expr.value).startswith("int") else 0
        return (*inner, *(fill for _ in range(width - len(inner))))[:width]

    def _and(self, expr: Any, width: int) -> Bits:
        return tuple(_and(a, b) for a, b in zip(self.bits(expr.a), self.bits(expr.b), strict=True))

    def _or(self, expr: Any, width: int) -> Bits:
        return tuple(_or(a, b) for a, b in zip(self.bits(expr.a), self.bits(expr.b), strict=True))

    def _xor(self, expr: Any, width: int) -> Bits:
        return tuple(_xor(a, b) for a, b in zip(self.bits(expr.a), self.bits(expr.b), strict=True))

    def _left(self, expr: Any, width: int) -> Bits:
        return _moved(self.bits(expr.a), self._amount(expr.b, width), 0)

    def _right(self, expr: Any, width: int) -> Bits:
        inner, amount = self.bits(expr.a), self.value(expr.b)
        fill = inner[-1] if dtype_of(expr).startswith("int") else 0
        if amount is not None:
            return _moved(inner, -self._amount(expr.b, width), fill)
        # An amount that differs between threads: right for bits that stay below the width, which the user of the bits
        # has to check.
        first = next((b.source for b in inner if isinstance(b, Bit)), 0)
        if any(b not in (Bit(first, k), 0) for k, b in enumerate(inner)) or self.sources[first].shift is not None:
            raise Unknown("a shift by an unknown amount of more than a load")
        source = self._source(self.sources[first].load, expr.b)
        return tuple(Bit(source, b.index) if isinstance(b, Bit) else b for b in inner)

    def _source(self, load: Any, shift: Any = None) -> int:
        """The number of a source; equal ones have one."""
        for k, old in enumerate(self.sources):
            if _same(old.load, load) and _same(old.shift, shift):
                return k
        self.sources.append(Source(load, shift))
        return len(self.sources) - 1

    def _product(self, expr: Any, width: int) -> Bits:
        factor = self.value(expr.b)
        inner = self.bits(expr.a) if factor is not None else self.bits(expr.b)
        factor = factor if factor is not None else self.value(expr.a)
        if factor is None or factor <= 0 or factor & (factor - 1):
            raise Unknown("a product")
        return _moved(inner, factor.bit_length() - 1, 0)

    def _quotient(self, expr: Any, width: int) -> Bits:
        return _moved(self._not_negative(expr), -self._power(expr.b), 0)

    def _remainder(self, expr: Any, width: int) -> Bits:
        keep = self._power(expr.b)
        return tuple(b if k < keep else 0 for k, b in enumerate(self._not_negative(expr)))

    def _not_negative(self, expr: Any) -> Bits:
        inner = self.bits(expr.a)
        if inner[-1] != 0 and dtype_of(expr).startswith("int"):
            raise Unknown("a quotient of what may be negative")
        return inner

    def _sum(self, expr: Any, width: int) -> Bits:
        left, right = self.bits(expr.a), self.bits(expr.b)
        if any(a != 0 and b != 0 for a, b in zip(left, right, strict=True)):
            raise Unknown("a sum that carries")
        return tuple(_or(a, b) for a, b in zip(left, right, strict=True))

    def _amount(self, expr: Any, width: int) -> int:
        amount = self.value(expr)
        if amount is None or not 0 <= amount < width:
            raise Unknown("a shift by an unknown amount")
        return amount

    def _power(self, expr: Any) -> int:
        divisor = self.value(expr)
        if divisor is None or divisor <= 0 or divisor & (divisor - 1):
            raise Unknown("a divisor that is no power of two")
        return divisor.bit_length() - 1


_RULES: dict[Any, Callable[[BitReader, Any, int], Bits]] = {
    tirx.Cast: BitReader._cast,
    tirx.BitwiseAnd: BitReader._and,
    tirx.BitwiseOr: BitReader._or,
    tirx.BitwiseXor: BitReader._xor,
    tirx.LShift: BitReader._left,
    tirx.RShift: BitReader._right,
    tirx.Mul: BitReader._product,
    tirx.FloorDiv: BitReader._quotient,
    tirx.Div: BitReader._quotient,
    tirx.FloorMod: BitReader._remainder,
    tirx.Mod: BitReader._remainder,
    tirx.Add: BitReader._sum,
}


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return a.same_as(b) or bool(tvm_ffi.structural_equal(a, b))


def _is_integer(expr: Any) -> bool:
    return dtype_of(expr).startswith(("int", "uint")) and "x" not in dtype_of(expr)


def _constant(value: int, width: int) -> Bits:
    return tuple(value >> k & 1 for k in range(width))


def _moved(bits: Bits, left: int, fill: Any) -> Bits:
    """Shifted to the left, or by a negative amount to the right."""
    width = len(bits)
    if left >= 0:
        return (*(0 for _ in range(left)), *bits)[:width]
    return (*bits[-left:], *(fill for _ in range(-left)))[:width]


def _and(a: Any, b: Any) -> Any:
    if a == 0 or b == 0:
        return 0
    if a == 1 or b == 1:
        return b if a == 1 else a
    if a == b:
        return a
    raise Unknown("two bits in one")


def _or(a: Any, b: Any) -> Any:
    if a == 1 or b == 1:
        return 1
    if a == 0 or b == 0:
        return b if a == 0 else a
    if a == b:
        return a
    raise Unknown("two bits in one")


def _xor(a: Any, b: Any) -> Any:
    if a == 0 or b == 0:
        return b if a == 0 else a
    for known, other in ((a, b), (b, a)):
        if known == 1:
            return other.opposite() if isinstance(other, Bit) else 1 - other
    raise Unknown("two bits in one")


def _signed(bits: Bits, dtype: str) -> Field:
    """Without the copies of the sign at the top: s * -2^n is (1 - s) * 2^n - 2^n."""
    top = bits[-1]
    if top == 0 or dtype.startswith("uint"):
        n = len(bits)
        while n and bits[n - 1] == 0:
            n -= 1
        return Field(bits[:n])
    n = len(bits) - 1
    while n and bits[n - 1] == top:
        n -= 1
    return Field((*bits[:n], _xor(top, 1)), -(1 << n))


def _fits(field: Field, expr: Any) -> Field:
    """The field, if the type of `expr` holds all its values."""
    low, high = field.range
    kind = DataType(dtype_of(expr))
    limits = (
        (0, (1 << kind.bits) - 1)
        if dtype_of(expr).startswith("uint")
        else (-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1)
    )
    if not limits[0] <= low <= high <= limits[1]:
        raise Unknown("it wraps around")
    return field
