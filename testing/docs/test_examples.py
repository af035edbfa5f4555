# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/language do what they say, on every target: each block is a test of its own.

A block that is not for a target must be refused there by an error that says why.
"""

from __future__ import annotations

import pytest
import torch

from tilelang.sim import SimUnsupported
from tilelang.support.errors import UserError
from tilelang.tools.examples import Example, anchor, examples, pages, run_example

EXAMPLES = [e for page in pages() for e in examples(page)]


def _name(example: Example) -> str:
    return f"{example.page.stem}:{example.line}:{anchor(example.section)}"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Seeds, and a folder for what an example writes."""
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)


def _check(example: Example, target: str) -> None:
    if target in example.targets:
        run_example(example)
        return
    with pytest.raises((UserError, SimUnsupported)) as refusal:
        run_example(example)
    print(f"not on {target}: {refusal.value}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_example(example, target, monkeypatch):
    monkeypatch.setenv("TILELANG_TARGET", target)
    _check(example, target)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_example_on_the_gpu(example, monkeypatch):
    monkeypatch.setenv("TILELANG_TARGET", "cuda")
    with torch.device("cuda"):
        _check(example, "cuda")
