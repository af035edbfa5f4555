# SPDX-License-Identifier: Apache-2.0
"""Packed integers become floats and bytes exactly, for every code, in whichever way a program writes it.

Each program runs on the simulator, which executes the same device program as a GPU, and is compared bit by bit with
numpy. The device program must compute whole registers: it has byte permutations or packed arithmetic, and no
conversion of a single integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, WORDS = 64, 32  # of packed bytes: every byte and every pair of neighbours occurs


def codes(dtype: str, columns: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    size = np.dtype(dtype).itemsize
    raw = rng.integers(0, 256, (ROWS, columns * size), dtype=np.uint8)
    flat = raw.reshape(-1)
    flat[:256] = np.arange(256)
    flat[256:512] = np.arange(256)[::-1]
    return raw.view(dtype)


def build(value: Callable[..., Any], per: int, dtype: str, out: str, columns: int, way: str, threads: int = 128) -> Any:
    """A kernel that unpacks (ROWS, columns / per) elements of `dtype` to (ROWS, columns) of `out`.

    `way`: "fragment" (as the A operand of a product holds it), "shared" (wide stores), "global" (read without a stop in
    shared memory).
    """

    @T.prim_func
    def main(packed: T.Tensor((ROWS, columns // per), dtype), O: T.Tensor((ROWS, columns), out)):
        with T.Kernel(1, threads=threads):
            packed_shared = T.alloc_shared((ROWS, columns // per), dtype)
            W_shared = T.alloc_shared((ROWS, columns), out)
            W_local = T.alloc_fragment((ROWS, columns), out)
            if way == "global":
                for i, j in T.Parallel(ROWS, columns):
                    O[i, j] = value(packed[i, j // per], j)
            elif way == "shared":
                T.copy(packed, packed_shared)
                for i, j in T.Parallel(ROWS, columns):
                    W_shared[i, j] = value(packed_shared[i, j // per], j)
                T.copy(W_shared, O)
            else:
                X_shared = T.alloc_shared((16, columns), out)
                sums = T.alloc_fragment((16, ROWS), "int32" if out == "int8" else "float32")
                T.copy(packed, packed_shared)
                T.clear(X_shared)
                for i, j in T.Parallel(ROWS, columns):
                    W_local[i, j] = value(packed_shared[i, j // per], j)
                T.gemm(X_shared, W_local, sums, transpose_B=True, clear_accum=True)
                T.copy(W_local, O)

    return main


def unpacked(raw: np.ndarray, bits: int) -> np.ndarray:
    """The numbers of `bits` bits, lowest first."""
    wide = raw.view(f"uint{8 * raw.itemsize}").astype(np.uint64)
    parts = [wide >> np.uint64(s) & np.uint64((1 << bits) - 1) for s in range(0, 8 * raw.itemsize, bits)]
    return np.stack(parts, axis=-1).reshape(raw.shape[0], -1).astype(np.int64)


def signed(numbers: np.ndarray, bits: int) -> np.ndarray:
    return np.where(numbers >= 1 << bits - 1, numbers - (1 << bits), numbers)


def as_int(x: Any) -> Any:
    return T.cast(x, "int32")


def e2m1(code: Any) -> Any:
    """A float16 whose exponent and mantissa are those of the code, times 2^14."""
    bits = T.bitwise_or(T.shift_left(T.bitwise_and(code, 7), 9), T.shift_left(T.bitwise_and(code, 8), 12))
    return T.reinterpret(T.cast(bits, "uint16"), "float16") * T.float16(2**14)


def e2m1_bfloat16(code: Any) -> Any:
    """The same in bfloat16, where the field is not at the border of a byte."""
    bits = T.bitwise_or(T.shift_left(T.bitwise_and(code, 7), 6), T.shift_left(T.bitwise_and(code, 8), 12))
    return T.reinterpret(T.cast(bits, "uint16"), "bfloat16") * T.bfloat16(2**126)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])

# name: (packed type, elements in one, the program, what it means)
FORMS: dict[str, tuple[str, int, Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "mask": ("uint8", 2, lambda x, j: as_int(x) >> (j % 2 * 4) & 15, lambda raw: unpacked(raw, 4)),
    "quotient": ("uint8", 2, lambda x, j: as_int(x) // (1 + j % 2 * 15) % 16, lambda raw: unpacked(raw, 4)),
    "minus 8": ("uint8", 2, lambda x, j: (as_int(x) >> (j % 2 * 4) & 15) - 8, lambda raw: unpacked(raw, 4) - 8),
    "8 minus": ("uint8", 2, lambda x, j: -8 + (as_int(x) >> (j % 2 * 4) & 15), lambda raw: unpacked(raw, 4) - 8),
    "sign shifts": (
        "int8",
        2,
        lambda x, j: as_int(x) << (28 - j % 2 * 4) >> 28,
        lambda raw: signed(unpacked(raw, 4), 4),
    ),
    "sign flip": (
        "uint8",
        2,
        lambda x, j: ((as_int(x) >> (j % 2 * 4) & 15) ^ 8) - 8,
        lambda raw: signed(unpacked(raw, 4), 4),
    ),
    "two bits": ("uint8", 4, lambda x, j: (as_int(x) >> (j % 4 * 2) & 3) - 1, lambda raw: unpacked(raw, 2) - 1),
    "one bit": ("uint8", 8, lambda x, j: as_int(x) >> (j % 8) & 1, lambda raw: unpacked(raw, 1)),
    "words": ("int32", 8, lambda x, j: x >> (j % 8 * 4) & 15, lambda raw: unpacked(raw, 4)),
    "unsigned words": ("uint32", 8, lambda x, j: x >> T.cast(j % 8 * 4, "uint32") & 15, lambda raw: unpacked(raw, 4)),
    "halves": ("uint16", 4, lambda x, j: as_int(x) >> (j % 4 * 4) & 15, lambda raw: unpacked(raw, 4)),
    "high first": ("uint8", 2, lambda x, j: as_int(x) >> (4 - j % 2 * 4) & 15, lambda raw: unpacked(raw, 4)[:, _SWAP]),
}
_SWAP = np.arange(64) ^ 1


def text_of(kernel: Any) -> str:
    return kernel.get_kernel_source()


def run(program: Any, raw: np.ndarray, out: str) -> np.ndarray:
    kernel = tilelang.compile(program, out_idx=[1], target="sim")
    got = kernel(torch.from_numpy(raw))
    if out == "bfloat16":
        return got.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return got.numpy()


def device_text(program: Any) -> str:
    return tilelang.lower(program, target="cuda").kernel_source


def packs(program: Any, out: str) -> bool:
    """Does the device program compute registers, and convert no integer by itself?"""
    text = device_text(program)
    name = {"float16": "half", "bfloat16": "nv_bfloat16", "int8": "signed char"}[out]
    single = re.search(rf"\(\({name}\)\(*int\)", text) or re.search(rf"\({name}\)\(\(", text)
    return ("tl_permute_bytes(" in text or "unpacked_words" in text or "tl_fma2" in text) and not single


@pytest.mark.parametrize("way", ["fragment", "shared", "global"])
@pytest.mark.parametrize("out", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("form", FORMS)
def test_every_code(form: str, out: str, way: str) -> None:
    dtype, per, value, meaning = FORMS[form]
    columns = 64
    program = build(lambda x, j: T.cast(value(x, j), out), per, dtype, out, columns, way)
    raw = codes(dtype, columns // per)
    want = meaning(raw).astype(ml_dtypes.bfloat16 if out == "bfloat16" else out)
    got = run(program, raw, out)
    assert np.array_equal(got.view(f"uint{8 * got.itemsize}"), want.view(f"uint{8 * want.itemsize}"))
    if (out, way) != ("int8", "shared"):  # two neighbours of a thread are no register of bytes
        assert packs(program, out), device_text(program)


def fast(number: Any) -> Any:
    """Into the mantissa of 1024 by hand."""
    return T.reinterpret(T.cast(T.bitwise_or(number, 0x6400), "uint16"), "float16") - T.float16(1024)


FLOATS: dict[str, tuple[str, int, Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "e2m1": (
        "uint8",
        2,
        lambda x, j: e2m1(as_int(x) >> (j % 2 * 4) & 15),
        lambda raw: np.concatenate([E2M1, -E2M1])[unpacked(raw, 4)],
    ),
    "e2m1 in bfloat16": (
        "uint8",
        2,
        lambda x, j: T.cast(e2m1_bfloat16(as_int(x) >> (j % 2 * 4) & 15), "float16"),
        lambda raw: np.concatenate([E2M1, -E2M1])[unpacked(raw, 4)],
    ),
    "mantissa": ("uint8", 2, lambda x, j: fast(as_int(x) >> (j % 2 * 4) & 15), lambda raw: unpacked(raw, 4)),
    "bytes": ("int8", 1, lambda x, j: T.cast(x, "float16"), lambda raw: raw.astype(np.float16)),
    "unsigned bytes": ("uint8", 1, lambda x, j: T.cast(x, "float16"), lambda raw: raw.astype(np.float16)),
    "scaled": (
        "uint8",
        2,
        lambda x, j: (T.cast(as_int(x) >> (j % 2 * 4) & 15, "float16") - T.float16(7.5)) * T.float16(0.3),
        lambda raw: (unpacked(raw, 4).astype(np.float16) - np.float16(7.5)) * np.float16(0.3),
    ),
}


@pytest.mark.parametrize("way", ["fragment", "shared", "global"])
@pytest.mark.parametrize("form", FLOATS)
def test_every_code_of_floats(form: str, way: str) -> None:
    dtype, per, value, meaning = FLOATS[form]
    program = build(value, per, dtype, "float16", 64, way)
    raw = codes(dtype, 64 // per)
    got, want = run(program, raw, "float16"), meaning(raw).astype(np.float16)
    assert np.array_equal(got.view(np.uint16), want.view(np.uint16))
    assert packs(program, "float16"), device_text(program)


# What must not be packed as if it were a field: it carries, wraps around, or is read behind the type's width.
ODD: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "too many bits": (lambda x, j: as_int(x) * 16 + 15, lambda b: b * 16 + 15),
    "a sum that carries": (lambda x, j: as_int(x) + (as_int(x) & 15), lambda b: b + (b & 15)),
    "wraps around": (lambda x, j: T.cast(T.cast(as_int(x) + 100, "uint8"), "int32"), lambda b: (b + 100) % 256),
    "shifted in": (lambda x, j: as_int(x) >> (j % 8) & 255, lambda b: b >> np.arange(64) % 8),
    "two elements": (lambda x, j: T.max(as_int(x), 7), lambda b: np.maximum(b, 7)),
    "chosen": (
        lambda x, j: T.if_then_else(j < 32, as_int(x) & 3, as_int(x) >> 6),
        lambda b: np.where(np.arange(64) < 32, b & 3, b >> 6),
    ),
}


@pytest.mark.parametrize("way", ["fragment", "shared"])
@pytest.mark.parametrize("form", ODD)
def test_other_integers_are_converted_one_by_one(form: str, way: str) -> None:
    value, meaning = ODD[form]
    program = build(lambda x, j: T.cast(value(x, j), "float16"), 1, "uint8", "float16", 64, way)
    raw = codes("uint8", 64)
    got, want = run(program, raw, "float16"), meaning(raw.astype(np.int64)).astype(np.float16)
    assert np.array_equal(got.view(np.uint16), want.view(np.uint16))


def test_fields_of_a_float_come_with_one_permutation() -> None:
    """Sign and magnitude stand apart in a float: one permutation brings both, a shift moves one of them on."""
    dtype, per, value, _ = FLOATS["e2m1 in bfloat16"]
    text = device_text(build(value, per, dtype, "float16", 64, "fragment"))
    (line,) = (line for line in text.splitlines() if "unpacked_ptr)[0] =" in line)
    starts = [m.end() for m in re.finditer(r"tl_permute_bytes\(", line)]
    assert len(starts) == 2 and len({_argument(line[at:]) for at in starts}) == 1  # the same twice: computed once


def _argument(text: str) -> str:
    """Up to the parenthesis that closes."""
    depth = 1
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if not depth:
            return text[:at]
    return text


def test_a_value_of_all_lanes_is_computed_once() -> None:
    program = build(lambda x, j: T.cast(as_int(x) & 15, "float16"), 64, "uint8", "float16", 64, "shared")
    assert "unpacked_words" not in device_text(program) and "tl_fma2" not in device_text(program)


def test_words_are_read_in_front_of_the_loop() -> None:
    """The bytes that the A operand of wgmma needs lie four apart: one load of 16 bytes has four of them."""
    dtype, per, value, _ = FORMS["mask"]
    text = device_text(build(lambda x, j: T.cast(value(x, j), "float16"), per, dtype, "float16", 128, "fragment"))
    loads = [line for line in text.splitlines() if "packed_shared_w_ptr" in line and "*(uint4*)(smem_ptr" in line]
    assert len(loads) == 8  # 64 bytes in each of two rows


def test_constants_of_many_registers_are_held() -> None:
    """Two constants an instruction: ptxas would move one of them to a register for every use."""
    dtype, per, value, _ = FORMS["mask"]
    few, many = (
        device_text(build(lambda x, j: T.cast(value(x, j), "float16"), per, dtype, "float16", width, "fragment"))
        for width in (16, 128)
    )
    assert "= tl_held(" not in few
    before, loop = many.split("unpacked_ptr[", 1)
    assert before.count("= tl_held(") == 4  # mask, exponent, factor, offset
    assert "tl_held(" not in loop and "(uint)15728655" not in loop
