# SPDX-License-Identifier: Apache-2.0
"""Conversions between float32 and the bits of bfloat16 and float8, as LLVM functions that get inlined.

They are LLVM text, not IR expressions: a rounding mentions its argument several times, and an expression tree of nested
roundings would grow with every simplification. Rounding is to nearest even. What is too large becomes infinity, in
float8_e4m3fn (which has none) the largest number, as CUDA's conversion does; NaN stays NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

__all__ = ["FLOAT_FORMATS", "FloatFormat", "decode", "encode", "extremum", "extremum_text", "llvm_functions"]


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
    def infinity(self) -> int:
        """What an overflow becomes."""
        return self.largest + 1 if self.has_inf else self.largest


FLOAT_FORMATS = {
    f.name: f
    for f in (
        FloatFormat("bfloat16", 8, 7, True),
        FloatFormat("float8_e4m3fn", 4, 3, False),
        FloatFormat("float8_e5m2", 5, 2, True),
    )
}


def decode(bits: Any, dtype: str) -> Any:
    """The float32 value of stored bits."""
    return tirx.call_pure_extern("float32", f"tl_{dtype}_to_f32", bits)


def encode(value: Any, dtype: str) -> Any:
    """The bits of the number nearest to a float32 value."""
    return tirx.call_pure_extern(FLOAT_FORMATS[dtype].storage, f"tl_f32_to_{dtype}", value)


def extremum(name: str, a: Any, b: Any, dtype: str) -> Any:
    """max or min of two floats; the number where one of them is NaN."""
    return tirx.call_pure_extern(dtype, f"tl_{name}_{dtype}", a, b)


def extremum_text(name: str, dtype: str) -> str:
    """LLVM text that defines `extremum` of a native type."""
    llvm, short = {"float16": ("half", "f16"), "float32": ("float", "f32"), "float64": ("double", "f64")}[dtype]
    return f"""
declare {llvm} @llvm.{name}num.{short}({llvm}, {llvm})
define internal {llvm} @tl_{name}_{dtype}({llvm} %a, {llvm} %b) alwaysinline nounwind {{
  %r = call {llvm} @llvm.{name}num.{short}({llvm} %a, {llvm} %b)
  ret {llvm} %r
}}"""


def llvm_functions(dtypes: Iterable[str]) -> str:
    """LLVM text that defines `decode` and `encode` of the types."""
    return "\n".join(
        text for d in sorted(set(dtypes)) for text in (_decode_text(FLOAT_FORMATS[d]), _encode_text(FLOAT_FORMATS[d]))
    )


def _float_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _decode_text(f: FloatFormat) -> str:
    """Shifts the fields into place and corrects the bias by a product, which also normalises subnormals."""
    sign, magnitude = 2 ** (f.bits - 1), 2 ** (f.bits - 1) - 1
    rebias = f"0x{struct.unpack('<Q', struct.pack('<d', 2.0 ** (127 - f.bias)))[0]:016X}"
    first_special = f.largest + 1
    return f"""
define internal float @tl_{f.name}_to_f32(i{f.bits} %bits) alwaysinline nounwind {{
  %x = zext i{f.bits} %bits to i32
  %s = and i32 %x, {sign}
  %sign = shl i32 %s, {32 - f.bits}
  %m = and i32 %x, {magnitude}
  %shifted = shl i32 %m, {23 - f.mantissa}
  %f = bitcast i32 %shifted to float
  %scaled = fmul float %f, {rebias}
  %n = bitcast float %scaled to i32
  %special = icmp uge i32 %m, {first_special}
  %mant = and i32 %shifted, 8388607
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
    magic_text = f"0x{struct.unpack('<Q', struct.pack('<d', magic))[0]:016X}"
    nan = 2 ** (f.bits - 1) - 1 if f.name != "bfloat16" else 0x7FC0
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
  %sum = fadd float %fa, {magic_text}
  %sumbits = bitcast float %sum to i32
  %sub = sub i32 %sumbits, {_float_bits(magic)}
  %small = icmp ult i32 %a, {_float_bits(2.0 ** (1 - f.bias))}
  %fields = select i1 %small, i32 %sub, i32 %normal
  %over = icmp ugt i32 %a, {_largest_input(f)}
  %clipped = select i1 %over, i32 {f.infinity}, i32 %fields
  %isnan = icmp ugt i32 %a, {0x7F800000}
  %out = select i1 %isnan, i32 {nan}, i32 %clipped
  %signed = or i32 %out, %sign
  %r = trunc i32 %signed to i{f.bits}
  ret i{f.bits} %r
}}"""


def _largest_input(f: FloatFormat) -> int:
    """float32 bits of the largest magnitude that does not overflow: half a step past the largest number, where a tie goes
    to the even neighbour (up when the largest number is odd)."""
    exponent = (f.largest >> f.mantissa) + 127 - f.bias
    mantissa = (f.largest & (2**f.mantissa - 1)) << (23 - f.mantissa)
    tie = (exponent << 23 | mantissa) + 2 ** (23 - f.mantissa - 1)
    return tie - (f.largest & 1)
