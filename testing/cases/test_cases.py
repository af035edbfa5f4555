# SPDX-License-Identifier: Apache-2.0
"""Small programs, each the witness of a kind of fault that kernels compilers have shown: `programs/<name>.py`.

A program has PROGRAMS, the kernels it makes as (factory, arguments), and run(device), which raises where a result is
wrong. Here they run on the cpu target, on the simulated device and, where there is a GPU, on it; and their IR is
verified at every level.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tilelang.ir.spec import verify
from tilelang.support.errors import UserError
from tilelang.transform.pipeline import LEVELS, lower

FOLDER = Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py"))


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_on_the_cpu(name, monkeypatch):
    monkeypatch.setenv("TILELANG_TARGET", "cpu")
    program(name).run("cpu")


@pytest.mark.parametrize("name", NAMES)
def test_on_the_simulated_device(name, monkeypatch):
    monkeypatch.setenv("TILELANG_TARGET", "sim")
    program(name).run("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_on_the_gpu(name):
    program(name).run("cuda")


@pytest.mark.parametrize("name", NAMES)
def test_every_level_is_well_formed(name):
    factory, args = program(name).PROGRAMS[0]
    try:
        func = factory.get_tir(*args)
        levels = [func, *(lower(func, "sm_90a", stop_after=level) for level in LEVELS[1:])]
    except UserError:
        return  # refused, as some of them may be
    for number, at in enumerate(levels, start=1):
        assert verify(at, number) == []
