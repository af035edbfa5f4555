# SPDX-License-Identifier: Apache-2.0
"""float8_e8m0fnu, powers of two that scale blocks of smaller floats: the bits of torch on every target."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from agree import agree

import tilelang.language as T
from tilelang.support.float8 import E8M0, to_float8

KIND = ml_dtypes.float8_e8m0fnu
CODES = np.arange(256, dtype=np.uint8).view(KIND)
RNG = np.random.default_rng(2)
EDGES = [
    0.0, -0.0, 1.0, 1.25, 1.4999999, 1.5, -1.5, 3.0, 6.0, np.inf, -np.inf, np.nan, 1e-45, 2.0**-127, 2.0**-128,
    1.5 * 2.0**-127, 0.75 * 2.0**-127, 2.0**127, 1.5 * 2.0**127, 3.4e38,
]  # fmt: skip


def numbers() -> np.ndarray:
    spread = RNG.standard_normal(236) * 2.0 ** RNG.integers(-149, 127, 236)
    return np.concatenate([EDGES, spread]).astype("float32")


def of_torch(x: np.ndarray) -> Any:
    return torch.from_numpy(x).to(torch.float8_e8m0fnu).view(torch.uint8).numpy().view(KIND)


def zeros(*shape: int, dtype: Any = KIND) -> np.ndarray:
    return np.zeros(shape, dtype)


def test_the_rule_is_that_of_torch() -> None:
    x = np.concatenate([numbers(), np.arange(0, 2**32, 65521, dtype=np.uint64).astype("uint32").view("float32")])
    np.testing.assert_array_equal(to_float8(x, E8M0).view("uint8"), of_torch(x).view("uint8"))


def test_conversions() -> None:
    @T.prim_func
    def main(
        A: T.Tensor((256,), "float32"),
        C: T.Tensor((256,), E8M0),
        O: T.Tensor((256,), E8M0),
        P: T.Tensor((256,), "float32"),
        H: T.Tensor((256,), "float16"),
        B: T.Tensor((256,), "bfloat16"),
        K: T.Tensor((4,), E8M0),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(256):
                O[i] = A[i]
                P[i] = C[i]
                H[i] = C[i]
                B[i] = C[i]
            K[0] = 1.4
            K[1] = 0
            K[2] = T.max_value(E8M0)
            K[3] = T.min_value(E8M0)

    x = numbers()
    rest = zeros(256, dtype="float16"), zeros(256, dtype=ml_dtypes.bfloat16), zeros(4)
    with np.errstate(all="ignore"):
        got = agree(main, x, CODES, zeros(256), zeros(256, dtype="float32"), *rest, rtol=0, atol=0)[2:]
    given = torch.from_numpy(CODES.view("uint8")).view(torch.float8_e8m0fnu)
    np.testing.assert_array_equal(got[0].view("uint8"), of_torch(x).view("uint8"))
    np.testing.assert_array_equal(got[1], given.float().numpy())
    np.testing.assert_array_equal(got[2], given.half().numpy())
    np.testing.assert_array_equal(got[3].astype("float32"), given.bfloat16().float().numpy())
    np.testing.assert_array_equal(got[4].view("uint8"), [127, 0, 254, 0])


def test_tiles_arithmetic_and_bits() -> None:
    @T.prim_func
    def main(
        A: T.Tensor((16, 64), E8M0),
        X: T.Tensor((16, 64), "float32"),
        O: T.Tensor((5, 16, 64), E8M0),
        P: T.Tensor((16, 64), "float32"),
        C: T.Tensor((16, 64), "bool"),
        R: T.Tensor((16,), E8M0),
    ):
        with T.Kernel(1, threads=64):
            S, F = T.alloc_shared((16, 64), E8M0), T.alloc_fragment((16, 64), E8M0)
            wide, top = T.alloc_fragment((16, 64), "float32"), T.alloc_fragment((16,), E8M0)
            T.copy(A, S)
            T.copy(S, F)
            T.copy(F, O[0, :, :])
            T.copy(S, wide)
            T.copy(wide, P)
            T.reduce_max(F, top, dim=1)
            T.copy(top, R)
            T.copy(X, wide)
            T.copy(wide, F)
            T.copy(F, O[1, :, :])
            for i, j in T.Parallel(16, 64):
                O[2, i, j] = A[i, j] * A[i, 63 - j]
                O[3, i, j] = T.if_then_else(j < 32, A[i, j], A[i, 63 - j])
                O[4, i, j] = T.reinterpret(T.reinterpret(A[i, j], "uint8") ^ T.uint8(1), E8M0)
                C[i, j] = A[i, j] < A[i, 63 - j]

    a = RNG.integers(90, 160, (16, 64)).astype("uint8").view(KIND)
    x = RNG.permutation(np.resize(numbers(), 1024)).reshape(16, 64)
    outputs = zeros(5, 16, 64), zeros(16, 64, dtype="float32"), zeros(16, 64, dtype="bool"), zeros(16)
    with np.errstate(all="ignore"):
        _, _, o, p, c, top = agree(main, a, x, *outputs, rtol=0, atol=0)
    code, mirrored = a.view("uint8").astype("int32"), a.view("uint8").astype("int32")[:, ::-1]
    want = [
        code,
        of_torch(x).view("uint8"),
        code + mirrored - 127,
        np.where(np.arange(64) < 32, code, mirrored),
        code ^ 1,
    ]
    np.testing.assert_array_equal(o.view("uint8"), want)
    np.testing.assert_array_equal(p, a.astype("float32"))
    np.testing.assert_array_equal(c, code < mirrored)
    np.testing.assert_array_equal(top.view("uint8"), code.max(1))


def test_blocks_are_scaled() -> None:
    """A row of 64 float32 becomes two blocks of float8 with a scale each, and comes back."""

    @T.prim_func
    def main(
        X: T.Tensor((32, 64), "float32"),
        Q: T.Tensor((32, 64), "float8_e4m3fn"),
        S: T.Tensor((32, 2), E8M0),
        Y: T.Tensor((32, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            rows, largest = T.alloc_fragment((32, 2, 32), "float32"), T.alloc_fragment((32, 2), "float32")
            scale = T.alloc_fragment((32, 2), E8M0)
            for i, b, j in T.Parallel(32, 2, 32):
                rows[i, b, j] = X[i, b * 32 + j]
            T.reduce_absmax(rows, largest, dim=2)
            for i, b in T.Parallel(32, 2):
                scale[i, b] = T.cast(largest[i, b] / 256, E8M0)
            T.copy(scale, S)
            for i, b, j in T.Parallel(32, 2, 32):
                Q[i, b * 32 + j] = rows[i, b, j] / T.float32(scale[i, b])
            for i, b, j in T.Parallel(32, 2, 32):
                y = T.cast(rows[i, b, j] / T.float32(scale[i, b]), "float8_e4m3fn")
                Y[i, b * 32 + j] = T.float32(y) * T.float32(scale[i, b])

    x = (RNG.standard_normal((32, 64)) * 2.0 ** RNG.integers(-9, 9, (32, 1))).astype("float32")
    outputs = zeros(32, 64, dtype=ml_dtypes.float8_e4m3fn), zeros(32, 2), zeros(32, 64, dtype="float32")
    _, q, s, y = agree(main, x, *outputs, rtol=0, atol=0)
    np.testing.assert_array_equal(s, of_torch(np.abs(x).reshape(32, 2, 32).max(2) / np.float32(256)))
    scaled = (x.reshape(32, 2, 32) / s.astype("float32")[..., None]).reshape(32, 64)
    np.testing.assert_array_equal(q, to_float8(scaled, "float8_e4m3fn"))
    np.testing.assert_allclose(y, x, rtol=2.0**-4, atol=1e-4 * np.abs(x).max())
