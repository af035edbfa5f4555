# SPDX-License-Identifier: Apache-2.0
"""Functions written in LLVM's language, linked into a program that calls them and inlined there.

They say what TIR cannot: conversions of narrow floats (as expressions these mention their argument several times, and
nested ones would grow without bound), NaN-aware extrema, atomics, printing. `helper_texts` gives the definitions of the
names that a program calls.

Conversions round to nearest even. What is too large becomes infinity, in float8_e4m3fn (which has none) the largest
number; NaN stays NaN. bfloat16 values are passed as float32.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.codegen.cpu.conversions import conversion_texts
from tilelang.codegen.cpu.directed import directed_texts
from tilelang.codegen.cpu.divisions import division_texts
from tilelang.codegen.cpu.printing import DECLARATIONS, is_print, print_text
from tilelang.codegen.cpu.shifts import shift_texts
from tilelang.support.float8 import E8M0

__all__ = ["FLOAT_FORMATS", "FloatFormat", "decode", "encode", "helper_texts", "is_helper", "maximum_nan"]


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE-like format with fewer bits than float32."""

    name: str
    exponent: int  # bits
    mantissa: int  # bits
    has_inf: bool  # float8_e4m3fn has none: its largest exponent holds numbers, and all ones is NaN

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def storage(self) -> str:
        return f"uint{self.bits}"

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent - 1) - 1

    @property
    def largest(self) -> int:
        """The bits of the largest finite number."""
        top = 2 ** (self.bits - 1) - 1
        return top - 2**self.mantissa if self.has_inf else top - 1

    @property
    def overflowed(self) -> int:
        """What an overflow becomes: infinity, or the largest number in a format that has none."""
        return self.largest + 1 if self.has_inf else self.largest

    @property
    def overflow(self) -> int:
        """float32 bits of the largest magnitude that does not overflow: half a step past the largest number, where a
        tie goes to the even neighbour (up when the largest number is odd)."""
        exponent = (self.largest >> self.mantissa) + 127 - self.bias
        mantissa = (self.largest & (2**self.mantissa - 1)) << (23 - self.mantissa)
        return (exponent << 23 | mantissa) + 2 ** (23 - self.mantissa - 1) - (self.largest & 1)


@dataclass(frozen=True)
class ExponentFormat:
    """Exponents of powers of two, without sign and fraction: float8_e8m0fnu."""

    name: str
    storage: str = "uint8"


_FIELDS = (
    FloatFormat("bfloat16", 8, 7, True),
    FloatFormat("float8_e4m3fn", 4, 3, False),
    FloatFormat("float8_e5m2", 5, 2, True),
)
FLOAT_FORMATS: dict[str, FloatFormat | ExponentFormat] = {f.name: f for f in (*_FIELDS, ExponentFormat(E8M0))}


def decode(bits: Any, dtype: str) -> Any:
    """The float32 value of stored bits."""
    return tirx.call_pure_extern("float32", f"tl_{dtype}_to_f32", bits)


def encode(value: Any, dtype: str) -> Any:
    """The bits of the number nearest to a float32 value."""
    return tirx.call_pure_extern(FLOAT_FORMATS[dtype].storage, f"tl_f32_to_{dtype}", value)


def maximum_nan(name: str, a: Any, b: Any) -> Any:
    """max or min of two float32 that is NaN where one of them is."""
    return tirx.call_pure_extern("float32", f"tl_{name}imum_float32", a, b)


@dataclass(frozen=True)
class _Helper:
    text: Callable[[], str]
    needs: tuple[str, ...] = ()


def helper_texts(names: Iterable[str]) -> str:
    """The definitions of helpers and of what they call."""
    wanted: dict[str, None] = {}

    def want(name: str) -> None:
        if name not in wanted:
            for other in _helper(name).needs:
                want(other)
            wanted[name] = None

    for name in sorted(set(names)):
        want(name)
    return "\n".join(_helper(n).text() for n in wanted)


def is_helper(name: str) -> bool:
    """Has this function a definition here."""
    return name in _HELPERS or is_print(name)


def _helper(name: str) -> _Helper:
    return _HELPERS[name] if name in _HELPERS else _Helper(lambda: print_text(name), ("printf",))


def _hex(value: float) -> str:
    """A float constant, which LLVM writes as the bits of a double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _float_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _decode_text(f: FloatFormat) -> str:
    """Shifts the fields into place and corrects the bias by a product, which also normalises subnormals."""
    return f"""
define internal float @tl_{f.name}_to_f32(i{f.bits} %bits) alwaysinline nounwind {{
  %x = zext i{f.bits} %bits to i32
  %s = and i32 %x, {2 ** (f.bits - 1)}
  %sign = shl i32 %s, {32 - f.bits}
  %m = and i32 %x, {2 ** (f.bits - 1) - 1}
  %shifted = shl i32 %m, {23 - f.mantissa}
  %f = bitcast i32 %shifted to float
  %scaled = fmul float %f, {_hex(2.0 ** (127 - f.bias))}
  %n = bitcast float %scaled to i32
  %special = icmp ugt i32 %m, {f.largest}
  %mant = and i32 %shifted, {0x7FFFFF}
  %nan = or i32 %mant, {0x7F800000}
  %v = select i1 %special, i32 %nan, i32 %n
  %signed = or i32 %v, %sign
  %r = bitcast i32 %signed to float
  ret float %r
}}"""


def _encode_text(f: FloatFormat) -> str:
    """Rounds normal numbers in the integer domain; below the smallest one, adding a number whose last place is the
    format's smallest subnormal rounds to a multiple of it."""
    shift = 23 - f.mantissa
    magic = 2.0 ** (1 - f.bias - f.mantissa + 23)
    nan = 0x7FC0 if f.name == "bfloat16" else 2 ** (f.bits - 1) - 1
    return f"""
define internal i{f.bits} @tl_f32_to_{f.name}(float %v) alwaysinline nounwind {{
  %u = bitcast float %v to i32
  %top = lshr i32 %u, {32 - f.bits}
  %sign = and i32 %top, {2 ** (f.bits - 1)}
  %a = and i32 %u, {0x7FFFFFFF}
  %down = lshr i32 %a, {shift}
  %odd = and i32 %down, 1
  %half = add i32 %a, {2 ** (shift - 1) - 1}
  %rounded = add i32 %half, %odd
  %kept = lshr i32 %rounded, {shift}
  %normal = sub i32 %kept, {(127 - f.bias) << f.mantissa}
  %fa = bitcast i32 %a to float
  %sum = fadd float %fa, {_hex(magic)}
  %sumbits = bitcast float %sum to i32
  %sub = sub i32 %sumbits, {_float_bits(magic)}
  %small = icmp ult i32 %a, {_float_bits(2.0 ** (1 - f.bias))}
  %fields = select i1 %small, i32 %sub, i32 %normal
  %over = icmp ugt i32 %a, {f.overflow}
  %clipped = select i1 %over, i32 {f.overflowed}, i32 %fields
  %isnan = icmp ugt i32 %a, {0x7F800000}
  %out = select i1 %isnan, i32 {nan}, i32 %clipped
  %signed = or i32 %out, %sign
  %r = trunc i32 %signed to i{f.bits}
  ret i{f.bits} %r
}}"""


def _decode_exponent_text() -> str:
    """2^-127 is subnormal, and the largest exponent is NaN."""
    return f"""
define internal float @tl_{E8M0}_to_f32(i8 %bits) alwaysinline nounwind {{
  %x = zext i8 %bits to i32
  %field = shl i32 %x, 23
  %least = icmp eq i32 %x, 0
  %n = select i1 %least, i32 {0x400000}, i32 %field
  %most = icmp eq i32 %x, 255
  %v = select i1 %most, i32 {0x7FC00000}, i32 %n
  %r = bitcast i32 %v to float
  ret float %r
}}"""


def _encode_exponent_text() -> str:
    """As `tilelang.support.float8` has it."""
    return f"""
define internal i8 @tl_f32_to_{E8M0}(float %v) alwaysinline nounwind {{
  %u = bitcast float %v to i32
  %a = and i32 %u, {0x7FFFFFFF}
  %exponent = lshr i32 %a, 23
  %fraction = and i32 %a, {0x7FFFFF}
  %subnormal = icmp eq i32 %exponent, 0
  %middle = select i1 %subnormal, i32 {0x400001}, i32 {0x400000}
  %above = icmp uge i32 %fraction, %middle
  %finite = icmp ult i32 %exponent, 255
  %up = and i1 %above, %finite
  %one = zext i1 %up to i32
  %sum = add i32 %exponent, %one
  %r = trunc i32 %sum to i8
  ret i8 %r
}}"""


_LLVM = {"float16": "half", "float32": "float", "float64": "double"}
_SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64"}


def _extremum_text(name: str, intrinsic: str, dtype: str) -> str:
    t, intrinsic = _LLVM[dtype], f"llvm.{intrinsic}.{_SUFFIX[dtype]}"
    return f"""
declare {t} @{intrinsic}({t}, {t})
define internal {t} @{name}({t} %a, {t} %b) alwaysinline nounwind {{
  %r = call {t} @{intrinsic}({t} %a, {t} %b)
  ret {t} %r
}}"""


def _mul_float16_text() -> str:
    """The exact product in float32, fenced off from what LLVM would narrow or fuse it with, and rounded."""
    return """
define internal half @tl_mul_float16(half %a, half %b) alwaysinline nounwind {
  %x = fpext half %a to float
  %y = fpext half %b to float
  %p = fmul float %x, %y
  %f = call float @llvm.arithmetic.fence.f32(float %p)
  %r = fptrunc float %f to half
  ret half %r
}"""


_ATOMIC_RMW = {
    "add": "add",
    "max": "max",
    "min": "min",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "inc": "uinc_wrap",
}


def _atomic_text(op: str, dtype: str) -> str:
    """An atomic read-modify-write that returns the old value."""
    name = f"tl_atomic_{op}_{dtype}"
    if dtype in _LLVM:
        t, rmw = _LLVM[dtype], {"add": "fadd", "max": "fmax", "min": "fmin"}.get(op, _ATOMIC_RMW[op])
    else:
        t = f"i{dtype.removeprefix('u').removeprefix('int')}"
        rmw = ("u" if dtype.startswith("u") and op in ("max", "min") else "") + _ATOMIC_RMW[op]
    return f"""
define internal {t} @{name}(ptr %p, {t} %x) alwaysinline nounwind {{
  %r = atomicrmw {rmw} ptr %p, {t} %x seq_cst
  ret {t} %r
}}"""


def _atomic_bfloat16_text(op: str) -> str:
    step = "fadd float %f, %x" if op == "add" else f"call float @tl_{op}_float32(float %f, float %x)"
    return f"""
define internal float @tl_atomic_{op}_bfloat16(ptr %p, float %x) alwaysinline nounwind {{
entry:
  %first = load atomic i16, ptr %p monotonic, align 2
  br label %again
again:
  %old = phi i16 [ %first, %entry ], [ %seen, %again ]
  %f = call float @tl_bfloat16_to_f32(i16 %old)
  %n = {step}
  %new = call i16 @tl_f32_to_bfloat16(float %n)
  %pair = cmpxchg ptr %p, i16 %old, i16 %new seq_cst seq_cst
  %seen = extractvalue {{ i16, i1 }} %pair, 0
  %ok = extractvalue {{ i16, i1 }} %pair, 1
  br i1 %ok, label %done, label %again
done:
  ret float %f
}}"""


def _cas_text(dtype: str) -> str:
    t = f"i{dtype.removeprefix('u').removeprefix('int')}"
    return f"""
define internal {t} @tl_atomic_cas_{dtype}(ptr %p, {t} %compare, {t} %x) alwaysinline nounwind {{
  %pair = cmpxchg ptr %p, {t} %compare, {t} %x seq_cst seq_cst
  %r = extractvalue {{ {t}, i1 }} %pair, 0
  ret {t} %r
}}"""


def _helpers() -> dict[str, _Helper]:
    table: dict[str, _Helper] = {}
    table[f"tl_{E8M0}_to_f32"] = _Helper(_decode_exponent_text)
    table[f"tl_f32_to_{E8M0}"] = _Helper(_encode_exponent_text)
    for f in _FIELDS:
        table[f"tl_{f.name}_to_f32"] = _Helper(lambda f=f: _decode_text(f))
        table[f"tl_f32_to_{f.name}"] = _Helper(lambda f=f: _encode_text(f))
    for op in ("max", "min"):
        for d in _LLVM:
            name = f"tl_{op}_{d}"
            table[name] = _Helper(lambda n=name, op=op, d=d: _extremum_text(n, f"{op}num", d))
        name = f"tl_{op}imum_float32"
        table[name] = _Helper(lambda n=name, op=op: _extremum_text(n, f"{op}imum", "float32"))
    integers = ("int32", "uint32", "int64", "uint64")
    for op in _ATOMIC_RMW:
        floats = tuple(_LLVM) if op in ("add", "max", "min") else ()
        for d in (*integers, *floats):
            table[f"tl_atomic_{op}_{d}"] = _Helper(lambda op=op, d=d: _atomic_text(op, d))
        if floats:
            needs = ("tl_bfloat16_to_f32", "tl_f32_to_bfloat16", *((f"tl_{op}_float32",) if op != "add" else ()))
            table[f"tl_atomic_{op}_bfloat16"] = _Helper(lambda op=op: _atomic_bfloat16_text(op), needs)
    for d in integers:
        table[f"tl_atomic_cas_{d}"] = _Helper(lambda d=d: _cas_text(d))
    table |= {name: _Helper(text, needs) for name, (text, needs) in directed_texts().items()}
    table |= {name: _Helper(text) for name, text in (division_texts() | shift_texts()).items()}
    table |= {name: _Helper(text, needs) for name, (text, needs) in conversion_texts().items()}
    table["tl_mul_float16"] = _Helper(_mul_float16_text, ("tl_ieee_declarations",))
    table["printf"] = _Helper(lambda: DECLARATIONS)
    return table


_HELPERS = _helpers()
