# SPDX-License-Identifier: Apache-2.0
"""Faulty programs are found out under every kind of interleaving; their right twins, and tricky ones, are let pass."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from faulty_programs import FAULTY, RIGHT, Case, build
from faulty_tile_programs import PROGRAMS

from tilelang.sim import SimResult, simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import lower

INTERLEAVINGS = ("rr", "random", "adv-last")


def run(what: Case, policy: str) -> SimResult:
    return simulate(build(what), [np.arange(256, dtype=np.float32), np.zeros(256, np.float32)], policy=policy, seed=1)


@pytest.mark.parametrize("policy", INTERLEAVINGS)
@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found(name: str, policy: str) -> None:
    result = run(FAULTY[name], policy)
    assert result.reports and result.kinds <= FAULTY[name].kinds, result


@pytest.mark.parametrize("policy", INTERLEAVINGS)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_let_pass(name: str, policy: str) -> None:
    result = run(RIGHT[name], policy)
    assert not result.reports, result


def arguments(device: Any) -> list[np.ndarray]:
    return [np.ones([int(x) for x in p.ty.shape], str(p.ty.dtype)) for p in device.params]


def check(name: str, faulty: bool, policy: str) -> SimResult:
    options = CompileOptions(sync_threads=not faulty, safe_memory_access=not faulty)  # nothing is put right for it
    device = lower(PROGRAMS[name][0](faulty), "sm_90a", options)
    return simulate(device, arguments(device), policy=policy, seed=1)


@pytest.mark.parametrize("policy", INTERLEAVINGS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fault_of_a_tile_program_is_found_at_its_line(name: str, policy: str) -> None:
    factory, kinds = PROGRAMS[name]
    lines, start = inspect.getsourcelines(factory)
    (line,) = [start + n for n, text in enumerate(lines) if "<- fault" in text]
    result = check(name, True, policy)
    found = {(r.kind, r.place.span.line) for r in result.reports if r.place.span is not None}
    assert any(kind in kinds and at == line for kind, at in found), (line, str(result))


@pytest.mark.parametrize("policy", INTERLEAVINGS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_its_right_twin_is_let_pass(name: str, policy: str) -> None:
    result = check(name, False, policy)
    assert not result.reports, result
