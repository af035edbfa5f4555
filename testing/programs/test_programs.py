# SPDX-License-Identifier: Apache-2.0
"""Every program of `areas` on the cpu, on simulated devices and on a GPU: it gives what its reference gives.

The areas are meant to be read: one file a part of the language, one small program a promise (see `witness.py`).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from witness import PROGRAMS, check


def load() -> None:
    for path in sorted((Path(__file__).parent / "areas").glob("*.py")):
        name = f"programs_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


load()

CASES = [(device, p) for p in PROGRAMS for device in p.devices]


@pytest.fixture
def target(monkeypatch):
    """Sets the target for kernels that find it out when they are called."""

    def set_target(name: str) -> str:
        monkeypatch.setenv("TILELANG_TARGET", name)
        return name

    return set_target


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("device", "what"), CASES, ids=[f"{p.title}-{d}" for d, p in CASES])
def test_result(device, what, target):
    check(what, target(device))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("what", PROGRAMS, ids=[p.title for p in PROGRAMS])
def test_on_the_gpu(what, target):
    check(what, target("cuda"))
