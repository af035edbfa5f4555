# SPDX-License-Identifier: Apache-2.0
"""Argument checks: every rule, with one wording in Python (cpu, sim) and in the native launcher (cuda)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilelang.runtime import native
from tilelang.runtime.arguments import ArgumentChecker
from tilelang.runtime.plan import LaunchPlan
from tilelang.runtime.signature import ScalarArg, Signature, Slot, TensorArg

SIGNATURE = Signature(
    "main",
    (
        TensorArg("A", "float32", ("s1", "64")),
        TensorArg("B", "float16", ("s1", "s2"), strides=("s3", "1"), align=16),
        ScalarArg("n", "int32"),
        TensorArg("C", "float32", ("s1 s0 add",)),
        ScalarArg("scale", "float32"),
        TensorArg("unused", "int8", ("4",), optional=True),
        TensorArg("D", "float4_e2m1fn", ("8",)),
    ),
    (
        Slot("n", "scalar", 2),
        Slot("M", "shape", 0, 0),
        Slot("N", "shape", 1, 1),
        Slot("ld", "stride", 1, 0),
    ),
)


def good() -> list[Any]:
    return [
        torch.zeros(10, 64),
        torch.zeros(10, 32, dtype=torch.float16)[:, :16],
        3,
        torch.zeros(13),
        0.5,
        None,
        torch.zeros(4, dtype=torch.uint8),
    ]


def with_arg(index: int, value: Any) -> list[Any]:
    args = good()
    args[index] = value
    return args


BAD: list[tuple[str, list[Any], type[Exception], str]] = [
    ("count", good()[:-1], ValueError, "takes 7 arguments, given 6"),
    ("none", with_arg(0, None), TypeError, "argument 0 'A': required a tensor, given None"),
    ("number", with_arg(0, 3), TypeError, "argument 0 'A': required a tensor of float32, given int"),
    (
        "dtype",
        with_arg(0, torch.zeros(10, 64).half()),
        TypeError,
        "argument 0 'A': required dtype float32, given float16",
    ),
    ("rank", with_arg(0, torch.zeros(640)), ValueError, "argument 0 'A': required rank 2, given 1, shape [640]"),
    ("extent", with_arg(0, torch.zeros(10, 65)), ValueError, "argument 0 'A': required shape[1] == 64, given 65"),
    (
        "symbol",
        with_arg(1, torch.zeros(11, 32).half()),
        ValueError,
        "argument 1 'B': required shape[0] == M = 10 (M from argument 0 'A'), given 11",
    ),
    (
        "expression",
        with_arg(3, torch.zeros(12)),
        ValueError,
        "argument 3 'C': required shape[0] == M + n = 13 (n from argument 2 'n', M from argument 0 'A'), given 12",
    ),
    (
        "contiguous",
        with_arg(0, torch.zeros(64, 10).t()),
        ValueError,
        "argument 0 'A': required stride[1] == 1 "
        "(contiguous; pass .contiguous() or declare it T.StridedTensor), given 10",
    ),
    (
        "stride",
        with_arg(1, torch.zeros(10, 32).half()[:, ::2]),
        ValueError,
        "argument 1 'B': required stride[1] == 1, given 2",
    ),
    (
        "alignment",
        with_arg(1, torch.zeros(10 * 16 + 1, dtype=torch.float16)[1:].view(10, 16)),
        ValueError,
        "argument 1 'B': required data aligned to 16 bytes, given 0x",
    ),
    ("device", with_arg(0, torch.zeros(10, 64, device="meta")), ValueError, "argument 0 'A': required a tensor on cpu"),
    ("scalar", with_arg(2, 1.5), TypeError, "argument 2 'n': required a number of type int32, given float"),
    ("range", with_arg(2, 2**31), ValueError, "argument 2 'n': required a value of int32, given 2147483648"),
    ("numpy", with_arg(2, np.float64(1.5)), TypeError, "argument 2 'n': required a number of type int32, given float"),
    ("numpy range", with_arg(2, np.int64(2**40)), ValueError, "argument 2 'n': required a value of int32, given 1099"),
    ("huge", with_arg(4, 2**2000), (TypeError, ValueError), "argument 4 'scale': required a "),
    ("real", with_arg(4, "x"), TypeError, "argument 4 'scale': required a number of type float32, given"),
    (
        "packed",
        with_arg(6, torch.zeros(8, dtype=torch.uint8)),
        ValueError,
        "argument 6 'D': required shape[0] == 8, given 16",
    ),
]


def python_check(args: list[Any]) -> None:
    ArgumentChecker(SIGNATURE, "cpu").check(args)


def native_check(args: list[Any]) -> None:
    plan = LaunchPlan(SIGNATURE, (), device_type="cpu")
    native.make_kernel(b"", json.dumps(plan.native_json()))[0](*args)


@pytest.fixture(params=["python", "native"])
def check(request: pytest.FixtureRequest) -> Callable[[list[Any]], None]:
    if request.param == "python":
        return python_check
    request.getfixturevalue("driver")
    return native_check


def test_fitting_arguments_pass(check: Callable[[list[Any]], None]) -> None:
    check(good())
    check(with_arg(5, torch.zeros(4, dtype=torch.int8)))


def test_slots_are_bound() -> None:
    assert ArgumentChecker(SIGNATURE, "cpu").check(good()) == [3, 10, 16, 32]


@pytest.mark.parametrize(("name", "args", "error", "text"), BAD, ids=[b[0] for b in BAD])
def test_misfits_are_refused(
    check: Callable[[list[Any]], None], name: str, args: list[Any], error: Any, text: str
) -> None:
    if name == "device" and check is native_check:
        pytest.skip("a meta tensor cannot be exchanged")
    with pytest.raises(error, match=re.escape(text)):
        check(args)


def test_strides_of_unit_and_empty_dimensions_are_free(check: Callable[[list[Any]], None]) -> None:
    args = with_arg(0, torch.zeros(1, 64).as_strided((1, 64), (7, 1)))
    args[1], args[3] = torch.zeros(1, 16).half(), torch.zeros(4)
    check(args)
    args = with_arg(0, torch.zeros(0, 64).as_strided((0, 64), (3, 5)))
    args[1], args[3] = torch.zeros(0, 16).half(), torch.zeros(3)
    check(args)


def test_symbol_in_a_linear_dimension_is_solved() -> None:
    signature = Signature("f", (TensorArg("A", "float32", ("s0 2 mul 1 add",)),), (Slot("n", "shape", 0),))
    checker = ArgumentChecker(signature, "cpu")
    assert checker.check([torch.zeros(7)]) == [3]
    with pytest.raises(ValueError, match=r"required shape\[0\] == \(n \* 2\) \+ 1 = 7"):
        checker.check([torch.zeros(8)])


def test_symbol_beyond_int32_is_refused(check: Callable[[list[Any]], None]) -> None:
    tensor = torch.zeros(1).as_strided((2**31, 64), (0, 0))
    with pytest.raises(ValueError, match=r"M = 2147483648 does not fit int32; declare the symbol T.dynamic"):
        check(with_arg(0, tensor))


def test_signature_survives_json() -> None:
    assert Signature.from_json(json.loads(json.dumps(SIGNATURE.to_json()))) == SIGNATURE
