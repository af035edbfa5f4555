# SPDX-License-Identifier: Apache-2.0
"""A recording CUDA driver for tests of the native launcher: compiled once, asked through a log of JSON lines.

The launcher keeps the first driver that it loads, hence tests of one process share the stub; each has its own log.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tilelang.runtime import native


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    if not native.LIBRARY.exists():
        pytest.skip("the native launcher is not built")
    library = tmp_path_factory.mktemp("stub") / "libcuda_stub.so"
    source = Path(__file__).with_name("stub_cuda.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


@dataclass
class StubDriver:
    """The recording driver: its calls so far, and what it is told."""

    log: Path
    monkeypatch: pytest.MonkeyPatch

    def calls(self, name: str | None = None) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines]
        return [c for c in found if name is None or c["call"] == name]

    def params(self, *sizes: int) -> None:
        """Sizes in bytes of the next kernel's parameters, which the driver cannot know."""
        self.monkeypatch.setenv("TILELANG_STUB_PARAMS", ",".join(map(str, sizes)))

    def fail(self, what: str) -> None:
        self.monkeypatch.setenv("TILELANG_STUB_FAIL", what)


@pytest.fixture
def driver(stub_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubDriver:
    monkeypatch.setenv("TILELANG_LIBCUDA", str(stub_library))
    monkeypatch.setenv("TILELANG_STUB_LOG", str(tmp_path / "calls.jsonl"))
    return StubDriver(tmp_path / "calls.jsonl", monkeypatch)
