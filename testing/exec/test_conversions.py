# SPDX-License-Identifier: Apache-2.0
"""Floats that become integers, also those that no integer holds: the cpu target does what the device does."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T

FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
EDGES = [0.0, 0.5, 0.99, 1.5, 127.9, 128.0, 200.0, 255.9, 256.0, 300.0, 32768.0, 65536.0, 7e4, 5e9, 1e19, 1e30, 1e300]
VALUES = [
    *(s * (2.0**power + step) for s in (1, -1) for power in (7, 8, 15, 16, 31, 32, 63, 64) for step in (-1, 0, 1)),
    *(sign * x for sign in (1, -1) for x in EDGES),
    float("inf"), -float("inf"), float("nan"),
]  # fmt: skip


def converted(source: str, dtype: str, target: str) -> list[int]:
    @T.prim_func
    def main(X: T.Tensor((len(VALUES),), source), O: T.Tensor((len(VALUES),), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(len(VALUES)):
                O[i] = T.cast(X[i], dtype)

    x = torch.tensor(VALUES, dtype=torch.float64).to(getattr(torch, source))
    o = torch.zeros(len(VALUES), dtype=getattr(torch, dtype))
    tilelang.compile(main, target=target)(x, o)
    return o.tolist()


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_cpu_target_converts_as_the_simulator(source: str, dtype: str):
    assert converted(source, dtype, "cpu") == converted(source, dtype, "sim")
