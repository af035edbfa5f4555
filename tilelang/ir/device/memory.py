# SPDX-License-Identifier: Apache-2.0
"""Rows on memory: cp.async, atomics, the shared address base."""

from __future__ import annotations

from tilelang.ir.device.effects import Access, Arrive, Commit, GroupWait, Mode
from tilelang.ir.device.row import CTYPE, DeviceOpRow, Form, Operand, Static, asm, gmem, smem, value

__all__ = ["CP_ASYNC", "ROWS"]

CP_ASYNC = "cp_async"  # group of one thread


def _cp_async(bytes: int, zfill: bool) -> Form:
    operands: tuple[Operand, ...] = (smem("dst"), gmem("src"))
    cache = "cg" if bytes == 16 else "ca"  # only 16 bytes may bypass L1
    text = f"cp.async.{cache}.shared.global [$dst], [$src], {bytes}"
    if zfill:
        operands, text = (*operands, value("src_bytes")), text + ", $src_bytes"
    effects = (
        Access("src", Mode.READ, "src_bytes" if zfill else bytes, group=CP_ASYNC),
        Access("dst", Mode.WRITE, bytes, group=CP_ASYNC),
    )
    return Form(operands, asm(text + ";", operands), effects=effects)


def _cp_async_wait(pending: int) -> Form:
    return Form((), asm(f"cp.async.wait_group {pending};", ()), effects=(GroupWait(CP_ASYNC, pending),))


_ATOMIC_DTYPES = ("float32", "int32", "uint32", "float16", "bfloat16", "float64", "int64", "uint64")
_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "uint64": 8}
_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
_BITS = {"float32": ("int", "__float_as_int", "__int_as_float"), "float64": ("long long", "__double_as_longlong", "__longlong_as_double")}


def _pointer(space: str, dtype: str) -> tuple[Operand, str]:
    """The pointer operand and text that makes `q` of it."""
    t = CTYPE[dtype]
    if space == "shared":
        return smem("p"), f"{t}* q = ({t}*)__cvta_shared_to_generic((unsigned)p); "
    return gmem("p", dtype), f"{t}* q = p; "


def _fenced(order: str, call: str, result: str) -> str:
    """`call` between the fences that make a relaxed atomic as strong as `order`."""
    before = "__threadfence(); " if order in ("release", "acq_rel", "seq_cst") else ""
    after = " __threadfence();" if order in ("acquire", "acq_rel", "seq_cst") else ""
    return f"{before}{result} r = {call};{after} return r;"


def _atomic(function: str):
    def build(dtype: str, space: str, order: str) -> Form:
        pointer, prologue = _pointer(space, dtype)
        t = CTYPE[dtype]
        call = f"{function}(q, x)"
        if dtype in ("int64",) and function in ("atomicAdd", "atomicExch"):  # modular: same bits as unsigned
            u = CTYPE["uint64"]
            call = f"({t}){function}(({u}*)q, ({u})x)"
        elif dtype in ("float32", "float64", "float16", "bfloat16") and function in ("atomicMax", "atomicMin"):
            return Form((pointer, value("x", dtype)), prologue + _float_extremum(function, dtype), dtype, _rmw(dtype))
        return Form((pointer, value("x", dtype)), prologue + _fenced(order, call, t), dtype, _rmw(dtype))

    return build


def _float_extremum(function: str, dtype: str) -> str:
    """Compare-and-swap loop: exact for mixed signs, keeps the number where one side is NaN."""
    t, better = CTYPE[dtype], ">" if function == "atomicMax" else "<"
    if dtype in ("float16", "bfloat16"):
        bits, to_bits, from_bits = "unsigned short", "*(unsigned short*)&", f"*({t}*)&"
        return (
            f"{bits} old = *(volatile {bits}*)q, seen; do {{ seen = old; {t} o = {from_bits}seen; "
            f"if (!((float)x {better} (float)o) && !((float)o != (float)o)) break; old = atomicCAS(({bits}*)q, seen, {to_bits}x); }} "
            f"while (old != seen); return {from_bits}old;"
        )
    bits, to_bits, from_bits = _BITS[dtype]
    u = "unsigned long long" if dtype == "float64" else bits
    return (
        f"{u} old = ({u}){to_bits}(*(volatile {t}*)q), seen; do {{ seen = old; {t} o = {from_bits}(({bits})seen); "
        f"if (!(x {better} o) && !(o != o)) break; old = atomicCAS(({u}*)q, seen, ({u}){to_bits}(x)); }} "
        f"while (old != seen); return {from_bits}(({bits})old);"
    )


def _rmw(dtype: str) -> tuple[Access, ...]:
    return (Access("p", Mode.ATOMIC, _BYTES.get(dtype, 4)),)


def _cas(dtype: str, space: str, order: str) -> Form:
    pointer, prologue = _pointer(space, dtype)
    body = prologue + _fenced(order, "atomicCAS(q, compare, x)", CTYPE[dtype])
    return Form((pointer, value("compare", dtype), value("x", dtype)), body, dtype, _rmw(dtype))


def _add_vector(lanes: int):
    def build(dtype: str) -> Form:
        operands = (gmem("p", dtype), *(value(f"x{i}", dtype) for i in range(lanes)))
        if dtype == "float32":
            text = f"red.global.add.v{lanes}.f32 [$p], {{{', '.join(f'$x{i}' for i in range(lanes))}}};"
            body = asm(text, operands)
        else:
            packed = "bf16x2" if dtype == "bfloat16" else "f16x2"
            body = (
                f"unsigned v = (unsigned)*(unsigned short*)&x0 | ((unsigned)*(unsigned short*)&x1 << 16); "
                f'asm volatile("red.global.add.noftz.{packed} [%0], %1;" :: "l"(p), "r"(v) : "memory");'
            )
        return Form(operands, body, effects=(Access("p", Mode.ATOMIC, lanes * _BYTES.get(dtype, 4)),))

    return build


def _load(dtype: str, order: str) -> Form:
    sem = {"relaxed": "relaxed.gpu", "acquire": "acquire.gpu"}[order]
    ptx = {"int32": "s32", "uint32": "u32", "float32": "f32", "int64": "s64", "uint64": "u64", "float64": "f64"}[dtype]
    operands = (gmem("p", dtype),)
    return Form(operands, asm(f"ld.{sem}.global.{ptx} $result, [$p];", operands, dtype), dtype, (Access("p", Mode.READ, _BYTES.get(dtype, 4)),))


def _store(dtype: str, order: str) -> Form:
    sem = {"relaxed": "relaxed.gpu", "release": "release.gpu"}[order]
    ptx = {"int32": "s32", "uint32": "u32", "float32": "f32", "int64": "s64", "uint64": "u64", "float64": "f64"}[dtype]
    operands = (gmem("p", dtype), value("x", dtype))
    return Form(operands, asm(f"st.{sem}.global.{ptx} [$p], $x;", operands), effects=(Access("p", Mode.WRITE, _BYTES.get(dtype, 4)),))


def _atomic_statics(*dtypes: str) -> tuple[Static, ...]:
    return (Static("dtype", str, dtypes[0], dtypes), Static("space", str, "global", ("global", "shared")), Static("order", str, "relaxed", _ORDERS))


_INTS = ("int32", "uint32", "int64", "uint64")
_WORDS = ("int32", "uint32", "float32", "int64", "uint64", "float64")

ROWS = (
    DeviceOpRow(
        "smem_base", Form((value("arena", "handle"),), 'int a; asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(arena)); return a;', "int32"), uniform=True, doc="32-bit shared address of the arena; inserted by code generation, never written by passes",
    ),
    DeviceOpRow(
        "cp_async", _cp_async, (Static("bytes", int, 16, (4, 8, 16)), Static("zfill", bool, False)), doc="bytes global -> shared, asynchronous; zfill: the first `src_bytes` are copied, the rest of dst is zero",
    ),
    DeviceOpRow("cp_async_commit", Form((), asm("cp.async.commit_group;", ()), effects=(Commit(CP_ASYNC),)), doc="close a group of cp_async of this thread"),
    DeviceOpRow("cp_async_wait", _cp_async_wait, (Static("pending", int, 0),), doc="at most `pending` groups of this thread are incomplete; a block barrier makes them visible to others"),
    DeviceOpRow(
        "cp_async_mbar_arrive", Form((smem("bar"),), asm("cp.async.mbarrier.arrive.noinc.shared.b64 [$bar];", (smem("bar"),)), effects=(Arrive("bar", after=CP_ASYNC),)), doc="arrive on the mbarrier when all earlier cp_async of this thread are complete",
    ),
    DeviceOpRow("atomic_add", _atomic("atomicAdd"), _atomic_statics(*_ATOMIC_DTYPES), doc="*p += x; returns the old value"),
    DeviceOpRow("atomic_max", _atomic("atomicMax"), _atomic_statics(*_ATOMIC_DTYPES), doc="*p = max(*p, x); returns the old value"),
    DeviceOpRow("atomic_min", _atomic("atomicMin"), _atomic_statics(*_ATOMIC_DTYPES), doc="*p = min(*p, x); returns the old value"),
    DeviceOpRow("atomic_and", _atomic("atomicAnd"), _atomic_statics("int32", "uint32", "uint64"), doc="*p &= x; returns the old value"),
    DeviceOpRow("atomic_or", _atomic("atomicOr"), _atomic_statics("int32", "uint32", "uint64"), doc="*p |= x; returns the old value"),
    DeviceOpRow("atomic_xor", _atomic("atomicXor"), _atomic_statics("int32", "uint32", "uint64"), doc="*p ^= x; returns the old value"),
    DeviceOpRow("atomic_exch", _atomic("atomicExch"), _atomic_statics("int32", "uint32", "float32", "int64", "uint64"), doc="*p = x; returns the old value"),
    DeviceOpRow("atomic_cas", _cas, _atomic_statics("int32", "uint32", "uint64"), doc="if (*p == compare) *p = x; returns the old value"),
    DeviceOpRow("atomic_add_x2", _add_vector(2), (Static("dtype", str, "float16", ("float16", "bfloat16")),), doc="p[0..1] += x, each element atomic; p is 4-byte aligned"),
    DeviceOpRow("atomic_add_f32x2", lambda: _add_vector(2)("float32"), needs="sm_90", doc="p[0..1] += x, each element atomic; p is 8-byte aligned"),
    DeviceOpRow("atomic_add_f32x4", lambda: _add_vector(4)("float32"), needs="sm_90", doc="p[0..3] += x, each element atomic; p is 16-byte aligned"),
    DeviceOpRow("atomic_load", _load, (Static("dtype", str, "int32", _WORDS), Static("order", str, "acquire", ("relaxed", "acquire"))), doc="*p, device scope"),
    DeviceOpRow("atomic_store", _store, (Static("dtype", str, "int32", _WORDS), Static("order", str, "release", ("relaxed", "release"))), doc="*p = x, device scope"),
)  # fmt: skip
