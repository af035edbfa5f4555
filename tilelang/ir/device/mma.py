# SPDX-License-Identifier: Apache-2.0
"""Rows on warp matrix multiply (mma.sync) and its shared-memory movers (ldmatrix, stmatrix)."""

from __future__ import annotations

from tilelang.ir.device.effects import Access, Convergence, Mode
from tilelang.ir.device.row import DeviceOpRow, Form, Static, asm, regs, smem, value

__all__ = ["MMA_SHAPES", "ROWS"]

_WARP = Convergence.WARP
_PTX = {
    "float16": "f16", "bfloat16": "bf16", "tf32": "tf32", "float64": "f64",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "int8": "s8", "uint8": "u8",
    "float32": "f32", "int32": "s32",
}  # fmt: skip

# (shape, operand dtypes, accumulator dtypes) -> registers of A and B (32-bit) and of D. PTX ISA 9.7.14.5
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_INT8 = ("int8", "uint8")
MMA_SHAPES: tuple[tuple[str, tuple[str, ...], tuple[str, ...], int, int], ...] = (
    ("m16n8k8", ("float16",), ("float32", "float16"), 2, 1),
    ("m16n8k8", ("bfloat16",), ("float32",), 2, 1),
    ("m16n8k16", ("float16",), ("float32", "float16"), 4, 2),
    ("m16n8k16", ("bfloat16",), ("float32",), 4, 2),
    ("m16n8k4", ("tf32",), ("float32",), 2, 1),
    ("m16n8k8", ("tf32",), ("float32",), 4, 2),
    ("m16n8k16", _INT8, ("int32",), 2, 1),
    ("m16n8k32", _INT8, ("int32",), 4, 2),
    ("m16n8k32", _FLOAT8, ("float32",), 4, 2),
)


def _mma(shape: str, a_dtype: str, b_dtype: str, acc_dtype: str) -> Form:
    found = [(m, n) for s, d, c, m, n in MMA_SHAPES if s == shape and {a_dtype, b_dtype} <= set(d) and acc_dtype in c]
    if not found:
        raise ValueError(f"mma has no {shape} {acc_dtype} += {a_dtype} x {b_dtype}")
    a_count, b_count = found[0]
    d = regs("d", "uint32", 2) if acc_dtype == "float16" else regs("d", acc_dtype, 4)
    operands = (d, regs("a", "uint32", a_count), regs("b", "uint32", b_count))
    acc = _PTX[acc_dtype]
    text = (
        f"mma.sync.aligned.{shape}.row.col.{acc}.{_PTX[a_dtype]}.{_PTX[b_dtype]}.{acc} {{$d}}, {{$a}}, {{$b}}, {{$d}};"
    )
    effects = (Access("d", Mode.UPDATE, "all"), Access("a", Mode.READ, "all"), Access("b", Mode.READ, "all"))
    return Form(operands, asm(text, operands, update=["d"], memory=False), effects=effects)


def _mma_f64() -> Form:
    operands = (regs("d", "float64", 2), value("a", "float64"), value("b", "float64"))
    text = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$d}, {$a}, {$b}, {$d};"
    return Form(operands, asm(text, operands, update=["d"], memory=False), effects=(Access("d", Mode.UPDATE, "all"),))


def _ldmatrix(count: int):
    def build(trans: bool) -> Form:
        operands = (regs("dst", "uint32", count), smem("src"))
        text = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16 {{$dst}}, [$src];"
        effects = (Access("src", Mode.READ, 16), Access("dst", Mode.WRITE, "all"))
        return Form(operands, asm(text, operands, write=["dst"]), effects=effects)

    return build


def _stmatrix(count: int):
    def build(trans: bool) -> Form:
        operands = (smem("dst"), regs("src", "uint32", count))
        text = f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16 [$dst], {{$src}};"
        effects = (Access("src", Mode.READ, "all"), Access("dst", Mode.WRITE, 16))
        return Form(operands, asm(text, operands), effects=effects)

    return build


_TRANS = (Static("trans", bool, False),)
_STATICS = (
    Static("shape", str),
    Static("a_dtype", str, "float16", tuple(_PTX)),
    Static("b_dtype", str, "float16", tuple(_PTX)),
    Static("acc_dtype", str, "float32", ("float32", "float16", "int32")),
)

ROWS = (
    DeviceOpRow(
        "mma",
        _mma,
        _STATICS,
        _WARP,
        doc="d += A @ B, A row-major, B column-major, packed 32-bit registers; fp8 needs sm_89",
    ),
    DeviceOpRow("mma_f64", _mma_f64(), converges=_WARP, doc="m8n8k4 in float64"),
    *(
        DeviceOpRow(
            f"ldmatrix_x{n}",
            _ldmatrix(n),
            _TRANS,
            _WARP,
            doc=f"{n} 8x8 16-bit tiles -> registers; lane i < {8 * n} gives the address of row i%8 of tile i/8",
        )
        for n in (1, 2, 4)
    ),
    *(
        DeviceOpRow(
            f"stmatrix_x{n}",
            _stmatrix(n),
            _TRANS,
            _WARP,
            "sm_90",
            doc=f"registers -> {n} 8x8 tiles of 16-bit elements; addresses as in ldmatrix_x{n}",
        )
        for n in (1, 2, 4)
    ),
)
