# SPDX-License-Identifier: Apache-2.0
"""Hardware operand layouts and tile rules as data: mma/wgmma fragments, swizzle modes, copy-engine boxes, type triples.

Pure numbers with citations (PTX ISA 9.0 sections); `tilelang.layout.operands` and `tilelang.layout.swizzle` turn them
into layouts. Steps are written least significant first as (extent, axis, stride): the index digit of that extent moves
`stride` along "thread" or "reg".
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ACCUMULATOR",
    "DESCRIPTOR_CODE",
    "LDMATRIX_BYTES",
    "MMA_M",
    "MMA_N",
    "MMA_TYPES",
    "REG_BITS",
    "SWIZZLE_MODES",
    "TMA_BOX_MAX",
    "TMA_INNER_ALIGN",
    "TMA_SHARED_ALIGN",
    "WARP",
    "WARPGROUP",
    "WGMMA_ANY_MAJOR",
    "WGMMA_K_BITS",
    "WGMMA_M",
    "WGMMA_N_MAX",
    "WGMMA_N_STEP",
    "WGMMA_TYPES",
    "OperandAtom",
    "Steps",
    "a_operand",
    "b_operand",
]

Steps = tuple[tuple[int, str, int], ...]

WARP = 32
WARPGROUP = 128
REG_BITS = 32


@dataclass(frozen=True)
class OperandAtom:
    """One warp's share of an mma operand, logical shape (rows, cols)."""

    rows: int
    cols: int
    row: Steps
    col: Steps


# m16n8 accumulator: row = lane / 4 (+ 8 for registers 2, 3), columns 2 * (lane % 4) and the next.
# PTX ISA 9.7.14.5.8 (mma.m16n8k16), and per warp 9.7.15.5.1.2 (wgmma D, registers 4j.. hold columns 8j..).
ACCUMULATOR = OperandAtom(16, 8, ((8, "thread", 4), (2, "reg", 2)), ((2, "reg", 1), (4, "thread", 1)))


def a_operand(bits: int) -> OperandAtom:
    """m16 x (256 / bits) A operand: 32 / bits elements a register; registers walk the row half, then the k half.

    PTX ISA 9.7.14.5.8 (16 bit), 9.7.14.5.4 (tf32), 9.7.14.5.10 (8 bit); wgmma A in registers: 9.7.15.5.1.1.
    """
    v = REG_BITS // bits
    row = ((8, "thread", 4), (2, "reg", v))
    return OperandAtom(16, 8 * v, row, ((v, "reg", 1), (4, "thread", 1), (2, "reg", 2 * v)))


def b_operand(bits: int) -> OperandAtom:
    """(256 / bits) x n8 B operand, logical shape (k, n): n = lane / 4. PTX ISA 9.7.14.5.8."""
    v = REG_BITS // bits
    return OperandAtom(8 * v, 8, ((v, "reg", 1), (4, "thread", 1), (2, "reg", v)), ((8, "thread", 4),))


# mma.sync: shape m16n8, k = 256 / bits (PTX ISA 9.7.14.1). ldmatrix reads 8x8 matrices of 16-byte rows (9.7.14.5.15).
MMA_M, MMA_N = 16, 8
LDMATRIX_BYTES = 16

# wgmma: m64nNk(256/bits), N a multiple of 8 up to 256 (PTX ISA 9.7.15.2, table 45; integer N: 24 and multiples of 16).
WGMMA_M, WGMMA_N_STEP, WGMMA_N_MAX, WGMMA_K_BITS = 64, 8, 256, 256

# (A, B) element types -> accumulator types. PTX ISA 9.7.15.2 and 9.7.14.1.
_FP8 = ("float8_e4m3fn", "float8_e5m2")
_INT8 = ("int8", "uint8")
_COMMON: dict[tuple[str, str], tuple[str, ...]] = {
    ("float16", "float16"): ("float16", "float32"),
    ("bfloat16", "bfloat16"): ("float32",),
    ("float32", "float32"): ("float32",),  # computed as tf32
    **{(a, b): ("int32",) for a in _INT8 for b in _INT8},
}
WGMMA_TYPES: dict[tuple[str, str], tuple[str, ...]] = {
    **_COMMON,
    **{(a, b): ("float16", "float32") for a in _FP8 for b in _FP8},
}
# The same for mma.sync, with the first architecture that has it.
MMA_TYPES: dict[tuple[str, str], tuple[tuple[str, ...], int]] = {
    **{k: (v, 80) for k, v in _COMMON.items()},
    **{(a, b): (("float32",), 89) for a in _FP8 for b in _FP8},
}
# Types for which a wgmma operand in shared memory may be MN-major (PTX ISA 9.7.15.3: only .f16 and .bf16 transpose).
WGMMA_ANY_MAJOR = frozenset({"float16", "bfloat16"})

# Swizzle modes of shared tiles: bytes of a box row -> number of XORed address bits (bits 4.. with bits 7..).
# PTX ISA 5.5.7 (tensor swizzling modes); 16 means none.
SWIZZLE_MODES: dict[int, int] = {128: 3, 64: 2, 32: 1, 16: 0}
# Bits 62..63 of a wgmma matrix descriptor (PTX ISA 9.7.15.5.1.3).
DESCRIPTOR_CODE: dict[int, int] = {128: 1, 64: 2, 32: 3, 16: 0}

# Tensor-map boxes: at most 256 elements a dimension, inner extent a multiple of 16 bytes (CUDA driver API,
# cuTensorMapEncodeTiled: boxDim).
TMA_BOX_MAX = 256
TMA_INNER_ALIGN = 16
TMA_SHARED_ALIGN = 128  # bytes, of a box in shared memory (PTX ISA 9.7.9.25.5.2, cp.async.bulk.tensor: dstMem)
