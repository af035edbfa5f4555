# SPDX-License-Identifier: Apache-2.0
"""Tests that run a program by `agree` or `on_device` run on simulated devices, and once more on a GPU (`-m gpu`)."""

from __future__ import annotations

import agree
import pytest

RUNNERS = {"agree", "on_device"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if RUNNERS & set(metafunc.function.__code__.co_names):
        metafunc.fixturenames.append("where")
        metafunc.parametrize("where", ["sim", pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)


@pytest.fixture
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What stands for the device: "sim" or "gpu"."""
    monkeypatch.setattr(agree, "WHERE", request.param)
    return request.param
