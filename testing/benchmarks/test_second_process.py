# SPDX-License-Identifier: Apache-2.0
"""Contestants of a second process, and the programs that two compilers read. Our package stands in for the other one,
on the CPU."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from suite import second_process, serve, shared_tensors  # noqa: E402  (the benchmarks are no installed package)
from suite.contest import PUBLIC, Case, Machine, Setup, contest, relative_error  # noqa: E402
from suite.families import FAMILIES  # noqa: E402
from suite.families.attention import by_heads  # noqa: E402
from suite.protocol import Flushed, HostTime, Timed, sustained_ms  # noqa: E402
from suite.second_process import PROGRAMS, Program, SecondProcess, why_absent  # noqa: E402


@pytest.fixture(scope="module")
def process() -> Iterator[SecondProcess]:
    process = SecondProcess(ROOT)
    yield process
    process.close()


def add(process: SecondProcess) -> tuple[Program, torch.Tensor]:
    """A program of the second process and what it must give."""
    a, b = torch.randn(8, 512), torch.randn(8, 512)
    arguments = {"M": 8, "N": 512, "dtype": "float32"}
    return Program(process, "elementwise", "add", arguments, [a, b]), a + b


FAULTS = """
import os, time
import tilelang

@tilelang.jit(out_idx=[2])
def dies(tile):
    os._exit(7)

@tilelang.jit(out_idx=[2])
def hangs(tile):
    time.sleep(60)

@tilelang.jit(out_idx=[2])
def refused(tile):
    print("what a compiler prints is no answer")
    raise ValueError(f"no kernel with a tile of {tile}")
"""


@pytest.fixture
def fault(process: SecondProcess, tmp_path: Path) -> Any:
    (tmp_path / "faults.py").write_text(FAULTS)

    def make(name: str) -> Program:
        tiles = [{"tile": 1}, {"tile": 2}] if name == "refused" else [{"tile": 1}]
        return Program(process, "faults", name, {}, [torch.ones(1)], tiles, folder=tmp_path)

    return make


# -- turns


def test_it_takes_its_turns_beside_the_others(process: SecondProcess) -> None:
    program, want = add(process)
    calls = {"torch": lambda: lambda: want.clone(), PUBLIC: program, "again": program}
    row = contest("g", Case("c", lambda: Setup(want, calls, 1e-6)), rounds=2)
    assert row.failed == {}
    assert row.error[PUBLIC] == 0.0
    assert all(row.ms[label] > 0 for label in calls)
    assert "block_M=" in row.note[PUBLIC]
    for key in range(1, 20):  # what was set up is gone with the row
        with pytest.raises(RuntimeError, match="KeyError"):
            process.ask("sample", 10.0, key=key)


def test_it_judges_every_choice_by_the_reference(process: SecondProcess) -> None:
    program, want = add(process)
    with pytest.raises(RuntimeError, match=r"block_M=1 .*relative error 1\.00e\+00, limit 1\.0e-03; block_M=8"):
        program.start(Flushed(), want / 2, 1e-3)
    with pytest.raises(RuntimeError, match="relative error nan"):
        program.start(Flushed(), want * math.nan, 1e-3)
    with pytest.raises(RuntimeError, match="the output is"):
        program.start(Flushed(), want[:4], 1e-3)


def test_it_measures_by_the_clock_of_the_row(process: SecondProcess) -> None:
    program, want = add(process)
    timed = program.start(HostTime(3, 2), want, 1e-6)
    assert 0 < timed.sample() < 100
    with pytest.raises(RuntimeError, match="another process"):
        timed.replay()
    timed.close()


def test_load_of_another_process_is_measured_there() -> None:
    program = Timed(None, lambda: 1.0, second_process._elsewhere, sustained=lambda seconds: 10 * seconds)
    assert sustained_ms(program, 0.5) == 5.0


def test_the_first_of_rotating_inputs_is_judged(process: SecondProcess) -> None:
    program, want = add(process)
    counted = [(torch.ones(8, 512), torch.zeros(8, 512))] * 2
    timed = replace(program, others=counted).start(Flushed(), want, 1e-6)
    assert timed.error == 0.0
    timed.close()
    with pytest.raises(RuntimeError, match=r"relative error"):
        replace(program, inputs=counted[0], others=[program.inputs]).start(Flushed(), want, 1e-6)


# -- failures


def test_a_program_that_does_not_compile_says_why_for_every_choice(fault: Any) -> None:
    with pytest.raises(RuntimeError, match=r"tile=1: ValueError: .*tile of 1; tile=2: ValueError: .*tile of 2"):
        fault("refused").start(Flushed(), torch.ones(1), 1e-3)


def test_a_process_that_dies_costs_one_contestant(process: SecondProcess, fault: Any) -> None:
    program, want = add(process)
    row = contest("g", Case("c", lambda: Setup(want, {"dead": fault("dies"), PUBLIC: program})), rounds=1)
    assert row.failed["dead"].startswith("RuntimeError: the second process ended with 7")
    assert list(row.ms) == [PUBLIC]


def test_a_process_that_hangs_is_ended(fault: Any, process: SecondProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    program, want = add(process)
    program.start(Flushed(), want, 1e-6).close()  # it runs: what follows is not its start
    monkeypatch.setattr(second_process, "SET_UP_S", 2.0)
    waited = []
    with pytest.raises(RuntimeError, match="no answer after 2 s"):
        fault("hangs").start(Flushed(), torch.ones(1), 1e-3, lambda: waited.append(1))
    assert len(waited) >= 2
    assert process._process is None


def test_the_package_must_come_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "tilelang").mkdir()  # without __init__.py another one is found first
    process = SecondProcess(tmp_path)
    with pytest.raises(RuntimeError, match="tilelang was found at"):
        add(process)[0].start(Flushed(), torch.ones(1), 1e-3)
    process.close()


def test_why_there_is_no_such_contestant(tmp_path: Path) -> None:
    assert "PUBLIC_TILELANG" in why_absent("")
    assert "has no package" in why_absent(str(tmp_path))
    assert why_absent(str(ROOT)) == ""
    assert Machine("cpu", True).public("elementwise", "add", {}) == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.uint8])
def test_tensors_cross_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.randint(0, 100, (6, 4)).to(dtype)
    for part in (tensor, tensor.T, tensor[:0]):
        got = shared_tensors.read(shared_tensors.write(tmp_path / "t", part))
        assert (got.dtype, got.shape) == (part.dtype, part.shape)
        assert torch.equal(got.contiguous().view(torch.uint8), part.contiguous().view(torch.uint8))


# -- the programs

WIRED = ["gemm", "decode_gemm", "gemm_fp8", "attention", "attention_decode", "dequant", "norm", "softmax"]
WIRED += ["elementwise", "launch"]
WITHOUT = ("silu", "transpose")


@pytest.mark.parametrize("family", WIRED)
def test_all_choices_of_a_family_are_right(process: SecondProcess, family: str) -> None:
    for case in FAMILIES[family](Machine("cpu", True, process)):
        if case.name.startswith(WITHOUT):
            continue
        setup = case.setup()
        setup.calls = {label: call for label, call in setup.calls.items() if isinstance(call, Program)}
        setup.unchecked = {}
        row = contest(family, Case(case.name, lambda setup=setup: setup), rounds=1)
        assert row.failed == {}
        assert row.ms
        assert not any("; not " in note for note in row.note.values()), row.note


def test_a_first_call_is_timed_in_a_process_of_its_own(process: SecondProcess) -> None:
    case = next(case for case in FAMILIES["compile"](Machine("cpu", True, process)) if case.name == "cold gemm")
    setup = case.setup()
    setup.calls = {PUBLIC: setup.calls[PUBLIC]}
    row = contest("compile", Case(case.name, lambda: setup), rounds=1)
    assert row.failed == {}
    assert row.ms[PUBLIC] > 10


def right(file: str, factory: str, arguments: dict[str, Any], inputs: list[torch.Tensor], want: Any) -> None:
    """Every choice of a program that only large problems take."""
    module = serve._module(PROGRAMS / f"{file}.py")
    large = getattr(module, f"choices_{factory}")(**arguments["large"])
    for choice in large:
        kernel = getattr(module, factory)(**arguments["small"], **choice)
        assert relative_error(serve._call(kernel, inputs)(), want) < 4e-3, choice


def test_tiles_of_large_products_are_right() -> None:
    a, b = (torch.randn(300, 200).bfloat16() for _ in range(2))
    kinds = {"dtype": "bfloat16", "transpose_B": True, "out_dtype": "bfloat16"}
    arguments = {"small": {"M": 300, "N": 300, "K": 200, **kinds}, "large": {"M": 4096, "N": 4096, "K": 4096, **kinds}}
    right("gemm", "matmul", arguments, [a, b], a.float() @ b.float().T)


@pytest.mark.parametrize("dim", [128, 256])
@pytest.mark.parametrize("causal", [True, False])
def test_tiles_of_wide_heads_are_right(dim: int, causal: bool) -> None:
    q, k, v = (torch.randn(1, 2, 320, dim).half() for _ in range(3))  # no tile divides 320
    size = {"batch": 1, "heads": 2, "length": 320, "dim": dim, "causal": causal, "dtype": "float16"}
    right("attention", "attention", {"small": size, "large": size}, [q, k, v], by_heads(q, k, v, causal))


def test_tiles_of_many_rows_and_packed_weights_are_right() -> None:
    inputs = [torch.randn(160, 256).half(), torch.randint(0, 256, (192, 128), dtype=torch.uint8)]
    inputs += [torch.rand(192, 2).half() / 10, torch.full((192, 2), 7.0).half()]
    numbers = torch.stack([inputs[1] & 15, inputs[1] >> 4], dim=-1).reshape(192, 256).float() - 7
    want = inputs[0].float() @ (numbers * inputs[2].float().repeat_interleave(128, 1)).T
    size = {"N": 192, "K": 256, "group": 128}
    right("dequant", "matmul_w4a16", {"small": {"M": 160, **size}, "large": {"M": 4096, **size}}, inputs, want)
