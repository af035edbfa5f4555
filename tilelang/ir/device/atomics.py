# SPDX-License-Identifier: Apache-2.0
"""Rows on atomic memory operations, of device scope.

Written in PTX, not with the CUDA functions: nvcc 13.0 compiles atomicAdd on an integer behind a converted shared
address into an access to global address 0.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.ir.device.effects import Access, Mode
from tilelang.ir.device.row import CTYPE, DeviceOpRow, Form, Operand, Static, asm, gmem, smem, value

__all__ = ["ROWS"]

_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "uint64": 8}
_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
_PTX = {
    "int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64", "float32": "f32", "float64": "f64",
    "float16": "noftz.f16", "bfloat16": "noftz.bf16",
}  # fmt: skip
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _access(dtype: str, count: int = 1) -> tuple[Access, ...]:
    return (Access("p", Mode.ATOMIC, count * _BYTES.get(dtype, 4)),)


def _pointer(space: str, dtype: str) -> Operand:
    return smem("p") if space == "shared" else gmem("p", dtype)


def _order(order: str, space: str) -> tuple[str, str]:
    """(fence before, qualifier) of an order."""
    scope = "cta" if space == "shared" else "gpu"
    if order == "seq_cst":
        return f"fence.sc.{scope}; ", f"acq_rel.{scope}"
    return "", f"{order}.{scope}"


def _bits(dtype: str) -> str:
    return f"uint{8 * _BYTES.get(dtype, 4)}"


def _to_bits(dtype: str, x: str) -> str:
    """Expression of the bits of value `x`."""
    return x if dtype == _bits(dtype) else f"*({CTYPE[_bits(dtype)]}*)&{x}"


def _atom(
    operation: str, ptx_type: Callable[[str], str], asm_type: Callable[[str], str]
) -> Callable[[str, str, str], Form]:
    """One `atom` instruction with one value operand; values whose register class differs travel as bits."""

    def build(dtype: str, space: str, order: str) -> Form:
        fence, qualifier = _order(order, space)
        operands = (_pointer(space, dtype), value("x", dtype))
        moved = asm_type(dtype)
        inner = (operands[0], value("x" if moved == dtype else "b", moved))
        text = f"{fence}atom.{qualifier}.{space}.{operation}.{ptx_type(dtype)} $result, [$p], ${inner[1].name};"
        body = asm(text, inner, moved)
        if moved != dtype:
            t, u = CTYPE[dtype], CTYPE[moved]
            body = f"{u} b = *({u}*)&x; " + body.replace("return y;", f"return *({t}*)&y;")
        return Form(operands, body, dtype, _access(dtype))

    return build


def _cas_loop(dtype: str, space: str, order: str, update: str, stop: str = "") -> str:
    """Read, compute `n` from the old value `o` and `x`, exchange unless it changed; gives the old value."""
    t, u = CTYPE[dtype], CTYPE[_bits(dtype)]
    width = 8 * _BYTES.get(dtype, 4)
    fence, qualifier = _order(order, space)
    scope = "cta" if space == "shared" else "gpu"
    letter = {16: "h", 32: "r", 64: "l"}[width]
    address = '"r"(p)' if space == "shared" else '"l"(p)'
    leave = f"if ({stop}) return o; " if stop else ""
    return (
        f'{u} seen, old; asm volatile("{fence}ld.relaxed.{scope}.{space}.b{width} %0, [%1];" : "={letter}"(old) : '
        f'{address} : "memory"); '
        f"while (true) {{ seen = old; {t} o = *({t}*)&seen; {leave}{t} n = {update}; "
        f'asm volatile("atom.{qualifier}.{space}.cas.b{width} %0, [%1], %2, %3;" : "={letter}"(old) : '
        f'{address}, "{letter}"(seen), '
        f'"{letter}"({_to_bits(dtype, "n")}) : "memory"); if (old == seen) return o; }}'
    )


def _unsigned_if_modular(dtype: str) -> str:
    return {"int64": "u64", "int32": "s32"}.get(dtype, _PTX[dtype])


_add_atom = _atom("add", _unsigned_if_modular, lambda d: _bits(d) if d in ("float16", "bfloat16") else d)


def _add(dtype: str, space: str, order: str) -> Form:
    form = _add_atom(dtype, space, order)
    if dtype != "bfloat16":
        return form
    loop = _cas_loop(dtype, space, order, f"({CTYPE[dtype]})((float)o + (float)x)")  # atom.add.bf16 is of sm_90
    body = f"\n#if __CUDA_ARCH__ >= 900\n{form.body}\n#else\n{loop}\n#endif\n"
    return Form(form.operands, body, dtype, form.effects)


def _extremum(operation: str) -> Callable[[str, str, str], Form]:
    atom = _atom(operation, lambda d: _PTX[d], lambda d: d)
    better = ">" if operation == "max" else "<"

    def build(dtype: str, space: str, order: str) -> Form:
        if dtype not in _FLOATS:
            return atom(dtype, space, order)
        # a number wins over NaN on either side, as in fmaxf; equal values are left alone
        stop = f"!((float)x {better} (float)o) && !((float)o != (float)o && (float)x == (float)x)"
        if dtype == "float64":
            stop = stop.replace("(float)", "")
        body = _cas_loop(dtype, space, order, "x", stop)
        return Form((_pointer(space, dtype), value("x", dtype)), body, dtype, _access(dtype))

    return build


def _cas(dtype: str, space: str, order: str) -> Form:
    fence, qualifier = _order(order, space)
    operands = (_pointer(space, dtype), value("compare", dtype), value("x", dtype))
    text = f"{fence}atom.{qualifier}.{space}.cas.b{8 * _BYTES.get(dtype, 4)} $result, [$p], $compare, $x;"
    return Form(operands, asm(text, operands, dtype), dtype, _access(dtype))


def _b(dtype: str) -> str:
    return f"b{8 * _BYTES.get(dtype, 4)}"


def _add_packed(dtype: str) -> Form:
    """Two adjacent 16-bit elements."""
    operands = (gmem("p", dtype), value("x0", dtype), value("x1", dtype))
    kind = "bf16x2" if dtype == "bfloat16" else "f16x2"
    pack = "unsigned v = (unsigned)*(unsigned short*)&x0 | ((unsigned)*(unsigned short*)&x1 << 16); "
    red = f'asm volatile("red.relaxed.gpu.global.add.noftz.{kind} [%0], %1;" :: "l"(p), "r"(v) : "memory");'
    if dtype == "bfloat16":
        t = CTYPE[dtype]
        loop = (
            f'unsigned old, seen; asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(old) : "l"(p) : "memory"); '
            f"do {{ seen = old; {t} e[2] = {{(({t}*)&seen)[0], (({t}*)&seen)[1]}}; "
            f"e[0] = ({t})((float)e[0] + (float)x0); e[1] = ({t})((float)e[1] + (float)x1); "
            'asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : '
            '"l"(p), "r"(seen), "r"(*(unsigned*)e) : "memory"); '
            "} while (old != seen); (void)v;"
        )
        red = f"\n#if __CUDA_ARCH__ >= 900\n{red}\n#else\n{loop}\n#endif\n"
    return Form(operands, pack + red, effects=_access(dtype, 2))


def _add_vector(lanes: int) -> Form:
    operands = (gmem("p", "float32"), *(value(f"x{i}", "float32") for i in range(lanes)))
    listed = ", ".join(f"$x{i}" for i in range(lanes))
    text = f"red.relaxed.gpu.global.add.v{lanes}.f32 [$p], {{{listed}}};"
    return Form(operands, asm(text, operands), effects=_access("float32", lanes))


def _load(dtype: str, order: str) -> Form:
    operands = (gmem("p", dtype),)
    fence, qualifier = _order(order, "global")
    qualifier = qualifier.replace("acq_rel", "acquire")
    text = f"{fence}ld.{qualifier}.global.{_PTX[dtype]} $result, [$p];"
    effects = (Access("p", Mode.READ, _BYTES.get(dtype, 4)),)
    return Form(operands, asm(text, operands, dtype), dtype, effects)


def _store(dtype: str, order: str) -> Form:
    operands = (gmem("p", dtype), value("x", dtype))
    fence, qualifier = _order(order, "global")
    qualifier = qualifier.replace("acq_rel", "release")
    text = f"{fence}st.{qualifier}.global.{_PTX[dtype]} [$p], $x;"
    return Form(operands, asm(text, operands), effects=(Access("p", Mode.WRITE, _BYTES.get(dtype, 4)),))


def _statics(*dtypes: str) -> tuple[Static, ...]:
    return (
        Static("dtype", str, dtypes[0], dtypes),
        Static("space", str, "global", ("global", "shared")),
        Static("order", str, "relaxed", _ORDERS),
    )


_INTS = ("int32", "uint32", "int64", "uint64")
_WORDS = ("int32", "uint32", "float32", "int64", "uint64", "float64")
_ALL = ("float32", "int32", "uint32", "float16", "bfloat16", "float64", "int64", "uint64")
_16 = Static("dtype", str, "float16", ("float16", "bfloat16"))


def _row(name: str, build: Callable[..., Form], dtypes: tuple[str, ...], doc: str) -> DeviceOpRow:
    return DeviceOpRow(name, build, _statics(*dtypes), doc=f"{doc}; returns the old value")


def _logic(operation: str) -> Callable[[str, str, str], Form]:
    return _atom(operation, _b, lambda d: d)


ROWS = (
    _row("atomic_add", _add, _ALL, "*p += x"),
    _row("atomic_max", _extremum("max"), _ALL, "*p = max(*p, x), a number wins over NaN"),
    _row("atomic_min", _extremum("min"), _ALL, "*p = min(*p, x), a number wins over NaN"),
    _row("atomic_and", _logic("and"), _INTS, "*p &= x"),
    _row("atomic_or", _logic("or"), _INTS, "*p |= x"),
    _row("atomic_xor", _logic("xor"), _INTS, "*p ^= x"),
    _row("atomic_exch", _atom("exch", _b, lambda d: d), _WORDS, "*p = x"),
    _row("atomic_inc", _atom("inc", lambda d: _PTX[d], lambda d: d), ("uint32",), "*p = *p >= x ? 0 : *p + 1"),
    _row("atomic_cas", _cas, _INTS, "if (*p == compare) *p = x"),
    DeviceOpRow("atomic_add_x2", _add_packed, (_16,), doc="p[0..1] += x, each element atomic; p is 4-byte aligned"),
    DeviceOpRow(
        "atomic_add_f32x2", _add_vector(2), needs="sm_90", doc="p[0..1] += x, each atomic; p is 8-byte aligned"
    ),
    DeviceOpRow(
        "atomic_add_f32x4", _add_vector(4), needs="sm_90", doc="p[0..3] += x, each atomic; p is 16-byte aligned"
    ),
    DeviceOpRow(
        "atomic_load",
        _load,
        (Static("dtype", str, "int32", _WORDS), Static("order", str, "acquire", ("relaxed", "acquire", "seq_cst"))),
        doc="*p",
    ),
    DeviceOpRow(
        "atomic_store",
        _store,
        (Static("dtype", str, "int32", _WORDS), Static("order", str, "release", ("relaxed", "release", "seq_cst"))),
        doc="*p = x",
    ),
)
