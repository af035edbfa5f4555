# SPDX-License-Identifier: Apache-2.0
"""mma.sync, ldmatrix, stmatrix and wgmma operand layouts against loops written from the PTX ISA's fragment pictures."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sim_build import Arena, at, dev, kernel, local
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from tilelang.sim import simulate
from tilelang.sim.ops_wgmma import operand_elements

RNG = np.random.default_rng(3)


def np_type(name: str) -> Any:
    return np.dtype({"tf32": "float32"}.get(name) or getattr(ml_dtypes, name, name))


def random(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max + 1, shape).astype(dtype)
    return RNG.integers(-8, 9, shape).astype(np.float32).astype(dtype)  # exact in every format


def fragment(matrix: np.ndarray, halves: int, count: int) -> np.ndarray:
    """Packed registers [lane, count] of an operand with rows of K."""
    per = 4 // matrix.itemsize
    out = np.zeros((32, count, per), matrix.dtype)
    for lane in range(32):
        for reg in range(count):
            row = lane // 4 + 8 * (reg % halves)
            col = reg // halves * 4 * per + lane % 4 * per
            out[lane, reg] = matrix[row, col : col + per]
    return out.reshape(32, -1).view(np.uint32)


@pytest.mark.parametrize(
    ("shape", "dtype", "acc", "a_count", "b_count"),
    [
        ("m16n8k8", "float16", "float32", 2, 1),
        ("m16n8k16", "float16", "float32", 4, 2),
        ("m16n8k16", "bfloat16", "float32", 4, 2),
        ("m16n8k16", "float16", "float16", 4, 2),
        ("m16n8k4", "tf32", "float32", 2, 1),
        ("m16n8k8", "tf32", "float32", 4, 2),
        ("m16n8k32", "int8", "int32", 4, 2),
        ("m16n8k16", "uint8", "int32", 2, 1),
        ("m16n8k32", "float8_e4m3fn", "float32", 4, 2),
    ],
)
def test_mma(shape: str, dtype: str, acc: str, a_count: int, b_count: int) -> None:
    k = int(shape.split("k")[1])
    a, b = random((16, k), np_type(dtype)), random((8, k), np_type(dtype))
    n_acc = 2 if acc == "float16" else 4

    def body(tx: Any, bx: Any, A: Any, B: Any, D: Any) -> None:
        ra, rb, rd = local("ra", a_count, "uint32"), local("rb", b_count, "uint32"), local("rd", n_acc, str(D.ty.dtype))
        for reg, src, n in ((ra, A, a_count), (rb, B, b_count)):
            for i in range(n):
                T.buffer_store(reg, src[tx, i], [i])
        for i in range(n_acc):
            T.buffer_store(rd, tirx.const(0, str(D.ty.dtype)), [i])
        for _ in range(2):
            dev("mma", rd.data, ra.data, rb.data, shape=shape, a_dtype=dtype, b_dtype=dtype, acc_dtype=acc)
        for i in range(n_acc):
            T.buffer_store(D, rd[i], [tx, i])

    out_dtype = "uint32" if acc == "float16" else acc
    func = kernel(
        body, {"A": ((32, a_count), "uint32"), "B": ((32, b_count), "uint32"), "D": ((32, n_acc), out_dtype)}, 32
    )
    got = np.zeros((32, n_acc), out_dtype)
    result = simulate(func, [fragment(a, 2, a_count), fragment(b, 1, b_count), got])
    assert not result.reports, result
    want = 2 * (a.astype(np.float64) @ b.astype(np.float64).T)
    values = got.view(np.float16).astype(np.float64) if acc == "float16" else got.astype(np.float64)
    for lane in range(32):
        for r in range(4):
            assert values[lane, r] == want[lane // 4 + 8 * (r // 2), lane % 4 * 2 + r % 2]


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_moves(count: int, trans: bool) -> None:
    """ldmatrix gives lane (g, q) of tile j elements [g, 2q..2q+1] (transposed: [2q..2q+1, g]); stmatrix is its
    inverse.
    """
    x = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)

    def body(tx: Any, bx: Any, X: Any, R: Any, Y: Any) -> None:
        arena = Arena(2 * count * 128)
        s, t = arena.view("S", (count * 8, 8), "uint16", 2), arena.view("T", (count * 8, 8), "uint16", 2)
        regs = local("regs", count, "uint32")
        for j in range(count * 2):
            T.buffer_store(s, X[j * 32 + tx], [(j * 32 + tx) // 8, (j * 32 + tx) % 8])
        dev("syncwarp")
        row = tx % (8 * count)
        dev(f"ldmatrix_x{count}", regs.data, at(s, row, 0), trans=trans)
        for j in range(count):
            T.buffer_store(R, regs[j], [tx, j])
        dev(f"stmatrix_x{count}", at(t, row, 0), regs.data, trans=trans)
        dev("syncwarp")
        for j in range(count * 2):
            T.buffer_store(Y, t[(j * 32 + tx) // 8, (j * 32 + tx) % 8], [j * 32 + tx])

    n = count * 64
    func = kernel(body, {"X": ((n,), "uint16"), "R": ((32, count), "uint32"), "Y": ((n,), "uint16")}, 32)
    regs, y = np.zeros((32, count), np.uint32), np.zeros(n, np.uint16)
    result = simulate(func, [x.reshape(-1), regs, y])
    assert not result.reports, result
    halves = regs.view(np.uint16).reshape(32, count, 2)
    for lane in range(32):
        for j in range(count):
            for e in range(2):
                row, col = lane // 4, lane % 4 * 2 + e
                assert halves[lane, j, e] == (x[j, col, row] if trans else x[j, row, col])
    assert (y == x.reshape(-1)).all()


def test_missing_syncwarp_before_ldmatrix() -> None:
    def body(tx: Any, bx: Any, R: Any) -> None:
        s = Arena(128).view("S", (8, 8), "uint16", 2)
        regs = local("regs", 1, "uint32")
        for j in range(2):
            T.buffer_store(s, tirx.const(0, "uint16"), [j * 4 + tx // 8, tx % 8])
        dev("ldmatrix_x1", regs.data, at(s, tx % 8, 0))
        T.buffer_store(R, regs[0], [tx])

    result = simulate(kernel(body, {"R": ((32,), "uint32")}, 32), [np.zeros(32, np.uint32)])
    assert result.kinds == {"race-wr"}


def physical(row: int, byte: int, mode: int) -> int:
    """Where a 128-, 64- or 32-byte swizzled tile keeps byte `byte` of row `row` (rows as wide as the swizzle)."""
    span = 16 << mode
    linear = row * span + byte
    return linear ^ ((linear >> 7) & ((1 << mode) - 1)) << 4


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_descriptor_k_major(mode: int) -> None:
    code, span = {3: 1, 2: 2, 1: 3}[mode], 16 << mode
    desc = (2048 >> 4) | (1 << 16) | ((8 * span >> 4) << 32) | (code << 62)
    at_, chunks, got_mode = operand_elements(desc, 64, 16, False, 2)
    assert got_mode == mode
    for r in (0, 1, 7, 8, 33, 63):
        for c in range(16):
            assert at_[r, c] * 2 == 2048 + physical(r, c * 2, mode)
    assert len(chunks) == 128


def test_descriptor_mn_major() -> None:
    """A [k][64] tile of 128-byte rows, read transposed: element (mn, k) lies in row k."""
    desc = (4096 >> 4) | (1 << 16) | ((1024 >> 4) << 32) | (1 << 62)
    at_, _, _ = operand_elements(desc, 64, 16, True, 2)
    for mn in (0, 1, 9, 63):
        for k in range(16):
            assert at_[mn, k] * 2 == 4096 + physical(k, mn * 2, 3)
