# SPDX-License-Identifier: Apache-2.0
"""Rows on arithmetic that TIR cannot say: approximate functions, packed conversions and packed half arithmetic.

All are pure and per thread; packed values are uint32 with the lower element in the low bits.
"""

from __future__ import annotations

from tilelang.ir.device.effects import Access, Mode
from tilelang.ir.device.row import DeviceOpRow, Form, Static, asm, regs, value

__all__ = ["ROWS"]


def _unary(name: str, ptx: str, doc: str, needs: str = "sm_80") -> DeviceOpRow:
    operands = (value("x", "float32"),)
    return DeviceOpRow(
        name,
        Form(operands, asm(f"{ptx} $result, $x;", operands, "float32", pure=True), "float32"),
        needs=needs,
        doc=doc,
    )


def _op(name: str, text: str, params: str, dtype: str, result: str, doc: str, needs: str = "sm_80") -> DeviceOpRow:
    operands = tuple(value(p, dtype) for p in params.split())
    return DeviceOpRow(name, Form(operands, asm(text, operands, result, pure=True), result), needs=needs, doc=doc)


def _packed(suffix: str) -> tuple[DeviceOpRow, ...]:
    binary = [("add2", "a + b"), ("mul2", "a * b"), ("sub2", "a - b")]
    rows = []
    one = "0x3F803F80" if suffix == "bf16x2" else "0x3C003C00"
    zero = "0x80008000"  # -0: x * y + -0 keeps the sign of zero
    # add, sub and mul of bf16x2 exist from sm_90 on; fma is in sm_80
    texts = {
        "add2": f"fma.rn.{suffix} $result, $a, {one}, $b;",
        "mul2": f"{{ .reg .b32 z; mov.b32 z, {zero}; fma.rn.{suffix} $result, $a, $b, z; }}",
        "sub2": f"{{ .reg .b32 m; mov.b32 m, {one} ^ {zero}; fma.rn.{suffix} $result, $b, m, $a; }}",
    }
    texts["add2"] = f"{{ .reg .b32 o; mov.b32 o, {one}; fma.rn.{suffix} $result, $a, o, $b; }}"
    for name, doc in binary:
        rows.append(_op(f"{name}_{suffix}", texts[name], "a b", "uint32", "uint32", f"packed {doc}"))
    rows.append(
        _op(f"fma2_{suffix}", f"fma.rn.{suffix} $result, $a, $b, $c;", "a b c", "uint32", "uint32", "packed a * b + c")
    )
    for name in ("min", "max"):
        rows.append(
            _op(f"{name}2_{suffix}", f"{name}.{suffix} $result, $a, $b;", "a b", "uint32", "uint32", f"packed {name}")
        )
    rows.append(_op(f"abs2_{suffix}", f"abs.{suffix} $result, $a;", "a", "uint32", "uint32", "packed |a|"))
    return tuple(rows)


def _pack8(kind: str) -> DeviceOpRow:
    text = (
        f"{{ .reg .b16 l, h; cvt.rn.satfinite.{kind}x2.f32 l, $x1, $x0; cvt.rn.satfinite.{kind}x2.f32 h, $x3, $x2; "
        "mov.b32 $result, {l, h}; }"
    )
    return _op(
        f"pack_{kind}x4", text, "x0 x1 x2 x3", "float32", "uint32", f"four float32 -> {kind}, saturating", "sm_89"
    )


def _convert8(kind: str) -> DeviceOpRow:
    operands = (regs("dst", "uint32", 1), *(value(f"x{i}", "float32") for i in range(4)))
    text = (
        f"{{ .reg .b16 l, h; cvt.rn.satfinite.{kind}x2.f32 l, $x1, $x0; cvt.rn.satfinite.{kind}x2.f32 h, $x3, $x2; "
        "mov.b32 $dst, {l, h}; }"
    )
    form = Form(operands, asm(text, operands, write=["dst"], pure=True), effects=(Access("dst", Mode.WRITE, "all"),))
    doc = f"four float32 -> {kind} in registers, saturating"
    return DeviceOpRow(f"convert_{kind}x4", form, needs="sm_89", doc=doc)


_HALF_FMA = "return __hfma(a, b, c);"

# The reciprocal is that of `rcp.rn` for numbers far from the ends of the range; elsewhere NaN, which fits nothing.
# In one block: seeing a choice, nvcc writes the code of every element twice.
_RECIPROCAL = (
    'float y; asm("{ .reg .pred p; .reg .f32 t, e; rcp.approx.ftz.f32 t, %1; fma.rn.f32 e, t, %1, 0fBF800000; '
    "neg.f32 e, e; fma.rn.f32 t, t, e, t; setp.ge.f32 p, %1, 0f21800000; setp.le.and.f32 p, %1, 0f71800000, p; "
    'selp.f32 %0, t, 0f7FFFFFFF, p; }" : "=f"(y) : "f"(b)); '
)


def _div_shared(zeros: bool) -> Form:
    operands = (value("a", "float32"), value("b", "float32"), regs("fits", "int32", 1))
    exact = "fabsf(q) >= 0x1p-40f" if not zeros else "(fabsf(q) >= 0x1p-40f) | ((a == 0.0f) & (y == y))"
    body = (
        f"{_RECIPROCAL}float q = __fmul_rn(a, y); q = __fmaf_rn(-__fmaf_rn(q, b, -a), y, q); "
        f"fits[0] &= (int)({exact}); return q;"
    )
    return Form(operands, body, "float32", (Access("fits", Mode.UPDATE, "all"),))


def _fma(dtype: str) -> Form:
    operands = tuple(value(p, dtype) for p in "abc")
    body = asm("fma.rn.f32 $result, $a, $b, $c;", operands, dtype, pure=True) if dtype == "float32" else _HALF_FMA
    return Form(operands, body, dtype)


def _dp4a(signed: bool) -> DeviceOpRow:
    t, d = ("s32", "int32") if signed else ("u32", "uint32")
    text = f"dp4a.{t}.{t} $result, $a, $b, $c;"
    return _op("dp4a" if signed else "dp4a_u", text, "a b c", d, d, "c + dot product of four packed 8-bit integers")


# Dividend and divisor are scaled by a power of two: the reciprocal is a normal number, 1.5 ulp over the whole range.
_DIV_FULL = (
    "float s = fabsf(b) > 0x1p126f ? 0x1p-2f : fabsf(b) < 0x1p-126f ? 0x1p24f : 1.0f, r; "
    'asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b * s)); return (a * s) * r;'
)

ROWS = (
    DeviceOpRow(
        "div_full",
        Form((value("a", "float32"), value("b", "float32")), _DIV_FULL, "float32"),
        doc="a / b, 2 ulp over the whole range; quotients by one divisor share its reciprocal",
    ),
    _unary("ex2", "ex2.approx.ftz.f32", "2^x, 2 ulp"),
    _unary("lg2", "lg2.approx.ftz.f32", "log2(x)"),
    _unary("rcp", "rcp.approx.ftz.f32", "1 / x, 1 ulp; subnormals are zero"),
    _unary("rsqrt", "rsqrt.approx.ftz.f32", "1 / sqrt(x)"),
    _unary("sqrt_approx", "sqrt.approx.ftz.f32", "sqrt(x)"),
    _unary("sin_approx", "sin.approx.ftz.f32", "sin(x)"),
    _unary("cos_approx", "cos.approx.ftz.f32", "cos(x)"),
    _unary("tanh_approx", "tanh.approx.f32", "tanh(x), relative error 2^-11"),
    DeviceOpRow(
        "fma",
        _fma,
        (Static("dtype", str, "float32", ("float32", "float16", "bfloat16")),),
        doc="a * b + c, one rounding",
    ),
    _op(
        "max3",
        "{ .reg .f32 t; max.f32 t, $a, $b; max.f32 $result, t, $c; }",
        "a b c",
        "float32",
        "float32",
        "largest of three",
    ),
    _op("max_nan", "max.NaN.f32 $result, $a, $b;", "a b", "float32", "float32", "max that is NaN if a or b is"),
    _op("min_nan", "min.NaN.f32 $result, $a, $b;", "a b", "float32", "float32", "min that is NaN if a or b is"),
    _op("div_approx", "div.approx.ftz.f32 $result, $a, $b;", "a b", "float32", "float32", "a / b, 2 ulp"),
    _op("pack_bf16x2", "cvt.rn.bf16x2.f32 $result, $hi, $lo;", "lo hi", "float32", "uint32", "two float32 -> bfloat16"),
    _op("pack_f16x2", "cvt.rn.f16x2.f32 $result, $hi, $lo;", "lo hi", "float32", "uint32", "two float32 -> float16"),
    _op(
        "tf32",
        "{ .reg .b32 t; cvt.rna.tf32.f32 t, $x; mov.b32 $result, t; }",
        "x",
        "float32",
        "float32",
        "x rounded to tf32",
    ),
    DeviceOpRow(
        "div_shared",
        _div_shared,
        (Static("zeros", bool, False),),
        doc="a / b rounded to nearest, with one reciprocal for all quotients by b; clears fits where it may not be: b "
        "outside 2^-60 .. 2^100, quotients below 2^-40 (zeros: but 0)",
    ),
    _convert8("e4m3"),
    _convert8("e5m2"),
    _pack8("e4m3"),
    _pack8("e5m2"),
    _op(
        "permute_bytes",
        "prmt.b32 $result, $a, $b, $selector;",
        "a b selector",
        "uint32",
        "uint32",
        "four of the eight bytes of a (0 to 3) and b (4 to 7), chosen by the nibbles of `selector`, lowest first",
    ),
    _op(
        "held",
        "{ .reg .b32 t; mov.b32 t, %lanemask_lt; shr.u32 t, t, 31; or.b32 $result, t, $x; }",
        "x",
        "uint32",
        "uint32",
        "x, which ptxas keeps in a register: constants it knows are moved there anew for every use",
    ),
    _dp4a(True),
    _dp4a(False),
    *_packed("bf16x2"),
    *_packed("f16x2"),
)
