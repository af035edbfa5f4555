# SPDX-License-Identifier: Apache-2.0
"""Rows on warpgroup matrix multiply (wgmma, sm_90a): descriptors, multiply, fences, groups.

One wgmma is m64 n{n} k{32 bytes}. Accumulator: n/2 float32 (or int32) registers, n/4 packed registers for float16. A
operand in registers: 4 packed 32-bit registers. While a wgmma is in flight nothing may touch its accumulators, its A
registers and its shared tiles; `wgmma_wait` names the registers so that no compiler moves a use above it.
"""

from __future__ import annotations

from tilelang.ir.device.effects import Access, Commit, Convergence, Fence, GroupWait, Mode, Proxy
from tilelang.ir.device.row import CTYPE, DeviceOpRow, Form, Static, asm, regs, smem, value
from tilelang.ir.device.warp import parse_registers

__all__ = ["ROWS", "WGMMA", "wgmma_k"]

WGMMA = "wgmma"  # group of one warpgroup
_WG = Convergence.WARPGROUP
_SM = "sm_90a"

# dtype -> name in PTX; "tf32" is float32 data read with 10 mantissa bits.
_PTX = {
    "float16": "f16", "bfloat16": "bf16", "tf32": "tf32",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "int8": "s8", "uint8": "u8",
}  # fmt: skip
_BYTES = {"float16": 2, "bfloat16": 2, "tf32": 4}
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_INT8 = ("int8", "uint8")
# swizzle bytes -> code in bits 62-63 of the matrix descriptor (PTX ISA 9.7.15.5.1). The tensor map numbers them the
# other way.
_SWIZZLE_CODE = {0: 0, 128: 1, 64: 2, 32: 3}


def wgmma_k(dtype: str) -> int:
    """Elements of K that one wgmma of this operand dtype takes (32 bytes)."""
    return 32 // _BYTES.get(dtype, 1)


def _check(n: int, a: str, b: str, acc: str, tnsp_a: bool, tnsp_b: bool) -> None:
    """Raises ValueError unless PTX ISA table "wgmma.mma_async" has the combination."""
    pairs = {"float16": ("float16",), "bfloat16": ("bfloat16",), "tf32": ("tf32",)}
    allowed = pairs.get(a) or (_FLOAT8 if a in _FLOAT8 else _INT8)
    accs = {"float16": ("float32", "float16"), "bfloat16": ("float32",), "tf32": ("float32",)}.get(a) or (
        ("float32", "float16") if a in _FLOAT8 else ("int32",)
    )
    if b not in allowed or acc not in accs:
        raise ValueError(f"wgmma has no {acc} += {a} x {b}")
    step = 16 if a in _INT8 and n > 32 else 8
    if not 8 <= n <= 256 or n % step:
        raise ValueError(f"wgmma of {a} takes n in multiples of {step} up to 256, got {n}")
    if (tnsp_a or tnsp_b) and _BYTES.get(a) != 2:
        raise ValueError(f"wgmma reads {a} in K-major order only")


def _accumulator(n: int, acc: str):
    return (
        regs("d", "uint32", n // 4) if acc == "float16" else regs("d", {"int32": "int32"}.get(acc, "float32"), n // 2)
    )


def _multiply(a_in_registers: bool):
    def build(n: int, a_dtype: str, b_dtype: str, acc_dtype: str, tnsp_a: bool, tnsp_b: bool, mode: str) -> Form:
        _check(n, a_dtype, b_dtype, acc_dtype, tnsp_a, tnsp_b)
        if a_in_registers and tnsp_a:
            raise ValueError("wgmma reads A from registers in K-major order only")
        a = regs("a", "uint32", 4) if a_in_registers else value("a", "uint64")
        operands = (_accumulator(n, acc_dtype), a, value("b", "uint64"))
        if mode == "pred":
            operands = (*operands, value("accumulate", "bool"))
        scale = {"init": "0", "acc": "1", "pred": "$accumulate"}[mode]
        ptx = {"float32": "f32", "float16": "f16", "int32": "s32"}[acc_dtype]
        imms = ""
        if a_dtype not in _INT8:
            imms = ", 1, 1"
            if _BYTES.get(a_dtype) == 2:
                imms += f", {int(tnsp_b)}" if a_in_registers else f", {int(tnsp_a)}, {int(tnsp_b)}"
        a_text = "{$a}" if a_in_registers else "$a"
        text = (
            f"{{ .reg .pred p; setp.ne.b32 p, {scale}, 0; wgmma.mma_async.sync.aligned.m64n{n}k{wgmma_k(a_dtype)}"
            f".{ptx}.{_PTX[a_dtype]}.{_PTX[b_dtype]} {{$d}}, {a_text}, $b, p{imms}; }}"
        )
        # mode init: "=" accumulators, so that no dead value is kept for them
        body = asm(
            text, operands, write=["d"] if mode == "init" else (), update=() if mode == "init" else ["d"], memory=False
        )
        effects = (
            Access("d", Mode.WRITE if mode == "init" else Mode.UPDATE, "all", Proxy.ASYNC, group=WGMMA),
            Access("a", Mode.READ, "all" if a_in_registers else "descriptor", Proxy.ASYNC, group=WGMMA),
            Access("b", Mode.READ, "descriptor", Proxy.ASYNC, group=WGMMA),
        )
        return Form(operands, body, effects=effects)

    return build


def _descriptor(swizzle: int) -> Form:
    # The low word goes through an opaque asm: otherwise the compiler rebuilds the descriptor at every use.
    hi = f"({_SWIZZLE_CODE[swizzle]}u << 30) | (unsigned)(sbo >> 4)"
    body = (
        "unsigned lo = (((unsigned)tile & 0x3FFFFu) >> 4) | ((unsigned)(lbo >> 4) << 16); "
        f'asm volatile("" : "+r"(lo)); return (({CTYPE["uint64"]})({hi}) << 32) | lo;'
    )
    return Form((smem("tile"), value("lbo"), value("sbo")), body, "uint64")


def _advance(bytes: int) -> Form:
    # Opaque as well: plain sums are moved out of loops, where each k step of each operand holds two registers.
    operands = (value("desc", "uint64"),)
    return Form(operands, asm(f"add.s64 $result, $desc, {bytes >> 4};", operands, "uint64", memory=False), "uint64")


def _wait(pending: int, regs: str) -> Form:
    operands = parse_registers(regs)
    body = asm(f"wgmma.wait_group.sync.aligned {pending};", operands, update=[o.name for o in operands])
    return Form(operands, body, effects=(GroupWait(WGMMA, pending),))


def _statics() -> tuple[Static, ...]:
    dtypes = tuple(_PTX)
    return (
        Static("n", int),
        Static("a_dtype", str, "bfloat16", dtypes),
        Static("b_dtype", str, "bfloat16", dtypes),
        Static("acc_dtype", str, "float32", ("float32", "float16", "int32")),
        Static("tnsp_a", bool, False),
        Static("tnsp_b", bool, False),
        Static("mode", str, "acc", ("init", "acc", "pred")),
    )


_MULTIPLY_DOC = (
    "d (+)= A @ B of 64 x n x 32 bytes, asynchronous. mode: init = d is written only, acc = d is added to, "
    "pred = added to if the operand `accumulate` is true. tnsp: that operand is MN-major in shared memory "
    "(16-bit types)"
)

ROWS = (
    DeviceOpRow(
        "wgmma_desc",
        _descriptor,
        (Static("swizzle", int, 128, (0, 32, 64, 128)),),
        needs=_SM,
        doc="matrix descriptor of a shared tile; swizzle, lbo and sbo in bytes. Move it with advance_descriptor, or "
        "by a k step with wgmma_advance",
    ),
    DeviceOpRow(
        "wgmma_advance",
        _advance,
        (Static("bytes", int, 32),),
        needs=_SM,
        doc="the descriptor `bytes` further, a multiple of 16: the next k step of an operand",
    ),
    DeviceOpRow("wgmma_ss", _multiply(False), _statics(), _WG, _SM, doc=_MULTIPLY_DOC + ". a, b: descriptors"),
    DeviceOpRow(
        "wgmma_rs", _multiply(True), _statics(), _WG, _SM, doc=_MULTIPLY_DOC + ". a: 4 packed registers, b: descriptor"
    ),
    DeviceOpRow(
        "wgmma_fence",
        Form((), asm("wgmma.fence.sync.aligned;", ()), effects=(Fence("wgmma"),)),
        converges=_WG,
        needs=_SM,
        doc="earlier register accesses are done before the next wgmma reads or writes them",
    ),
    DeviceOpRow(
        "wgmma_commit",
        Form((), asm("wgmma.commit_group.sync.aligned;", ()), effects=(Commit(WGMMA),)),
        converges=_WG,
        needs=_SM,
        doc="close a group of wgmmas",
    ),
    DeviceOpRow(
        "wgmma_wait",
        _wait,
        (Static("pending", int, 0), Static("regs", str, "")),
        _WG,
        _SM,
        doc='at most `pending` groups are open. `regs` such as "f64 r32" names the registers they held, in order',
    ),
)
