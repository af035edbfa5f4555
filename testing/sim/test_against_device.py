# SPDX-License-Identifier: Apache-2.0
"""The simulator against a device: bit for bit for copies, layouts, lanes, integers and casts; products to rounding.

Without a GPU the same programs run on the simulator and on the cpu target, where they have a meaning there. What was
compared on which card is in docs/findings/2026-11-simulator-against-h200.md. The 16 forms of wgmma descriptors are in
test_descriptor_forms.py, which runs on both as well.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_programs import CASES, Case, cast_program

import tilelang
from tilelang.runtime.dtypes import torch_dtype
from tilelang.transform.pipeline import lower

# Tensor cores sum in an order and precision of their own (PTX ISA 9.7.14: "unspecified"); bounds of the relative error
# of a sum of 160 products, by the type of the result.
ROUNDING = {torch.float32: 2e-3, torch.float16: 2e-2, torch.float64: 1e-12}


def run(case: Case, target: str) -> list[torch.Tensor]:
    """The outputs; what the program leaves alone stays zero."""
    kernel = tilelang.compile(case.func, target=target)
    device = "cuda" if target.startswith("cuda") else "cpu"
    args: list[Any] = [x.clone().to(device) for x in case.inputs()]
    for param in kernel.params[len(args) :]:
        args.append(torch.zeros([int(n) for n in param.shape], dtype=torch_dtype(param.dtype), device=device))
    kernel(*args)
    return [args[i].cpu() for i in case.outputs]


def differing(case: Case, got: list[torch.Tensor], want: list[torch.Tensor]) -> str:
    """The first element that differs more than it may, "" when none does."""
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        if case.exact:
            nan = a.isnan() & b.isnan() if a.is_floating_point() else torch.zeros_like(a, dtype=torch.bool)
            size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
            same = (a.view(size) == b.view(size)) | nan
        else:
            x, y = a.double(), b.double()
            same = (x - y).abs() <= ROUNDING[a.dtype] * y.abs().mean() + ROUNDING[a.dtype] * y.abs()
        if not bool(same.all()):
            at = tuple(int(i) for i in (~same).nonzero()[0])
            return f"output {number}{list(at)}: {a[at].item()} and {b[at].item()}, {int((~same).sum())} in all"
    return ""


@pytest.mark.parametrize("name", CASES)
def test_the_program_has_the_operations_that_it_is_about(name: str) -> None:
    case = CASES[name]
    text = lower(case.func, case.arch).script()
    for op in case.ops:
        assert f"tl.dev.{op}" in text, f"{name} has no {op}"


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.cpu])
def test_the_simulator_agrees_with_the_cpu_target(name: str) -> None:
    case = CASES[name]
    got, want = run(case, f"sim:{case.arch}"), run(case, "cpu")
    assert not differing(case, got, want), differing(case, got, want)


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("tma-swizzle") or n == "cp-async"])
def test_copies_that_the_program_waits_for(name: str) -> None:
    """They have no meaning on the cpu."""
    (a,) = CASES[name].inputs()
    if name == "cp-async":
        wants = [a.flip(1)]
    else:
        padded = torch.cat([a, torch.zeros(64 - len(a), a.shape[1], dtype=a.dtype)])  # reads outside give 0
        wants = [padded, a]
    for got, want in zip(run(CASES[name], f"sim:{CASES[name].arch}"), wants, strict=True):
        size = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[a.element_size()]
        assert torch.equal(got.view(size), want.contiguous().view(size))


# What the instructions that nvcc chooses say (PTX ISA, "cvt"; read off the PTX of these very programs).
CONVERSIONS = [
    ("float32", "int8", [300.7, -129.0, 1e10, -1e10, float("nan")], [44, 127, -1, 0, 0]),
    ("float32", "uint8", [300.7, -1.0, 1e10, float("nan")], [44, 0, 255, 0]),
    ("float16", "int8", [300.0, -129.0, float("nan")], [127, -128, 0]),
    ("bfloat16", "int8", [300.0, -129.0, float("nan")], [127, -128, 0]),
    ("float32", "int32", [3e9, -3e9, float("inf"), float("nan")], [2**31 - 1, -(2**31), 2**31 - 1, 0]),
    ("float32", "int64", [1e19, float("nan")], [2**63 - 1, -(2**63)]),
    ("float64", "int32", [3e9, float("nan")], [2**31 - 1, -(2**31)]),
]


@pytest.mark.parametrize("target", ["sim", "cpu"])
@pytest.mark.parametrize(("src", "dst", "values", "want"), CONVERSIONS)
def test_conversions_of_what_no_integer_holds(
    src: str, dst: str, values: list[float], want: list[int], target: str
) -> None:
    a = torch.zeros(1024, dtype=getattr(torch, src))
    a[: len(values)] = torch.tensor(values, dtype=torch.float64).to(a.dtype)
    out = torch.zeros(1024, dtype=getattr(torch, dst))
    tilelang.compile(cast_program(src, dst), target=target)(a, out)
    assert out[: len(values)].tolist() == want


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_the_simulator_agrees_with_the_device(name: str) -> None:
    case = CASES[name]
    major = torch.cuda.get_device_capability()[0]
    if not case.arch.removeprefix("sm_").startswith(str(major)):
        pytest.skip(f"a binary for {case.arch} does not run on a device of capability {major}.x")
    got, want = run(case, f"sim:{case.arch}"), run(case, f"cuda:{case.arch}")
    assert not differing(case, got, want), differing(case, got, want)
