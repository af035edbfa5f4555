# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tilelang.target import toolchain


def _toolkit(root: Path) -> Path:
    for name in ("nvcc", "nvdisasm"):
        (root / "bin").mkdir(parents=True, exist_ok=True)
        (root / "bin" / name).write_text("")
    (root / "include").mkdir()
    (root / "include" / "cuda_fp16.h").write_text("")
    return root


def test_the_toolkit_is_found_through_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _toolkit(tmp_path / "cuda")
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.delenv("TILELANG_NVCC", raising=False)
    monkeypatch.setattr(toolchain, "pip_cuda_dirs", tuple)
    assert toolchain.cuda_home() == home
    assert toolchain.nvcc_path() == home / "bin" / "nvcc"
    assert toolchain.find_tool("nvdisasm") == home / "bin" / "nvdisasm"
    assert toolchain.include_dirs() == (home / "include",)


def test_pip_packages_come_before_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(_toolkit(tmp_path / "cuda")))
    package = _toolkit(tmp_path / "nvidia" / "cu13")
    monkeypatch.setattr(toolchain, "pip_cuda_dirs", lambda: (package,))
    assert toolchain.find_tool("nvdisasm") == package / "bin" / "nvdisasm"
    assert toolchain.include_dirs()[0] == package / "include"


def test_nvcc_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_NVCC", "/opt/nvcc")
    assert toolchain.nvcc_path() == Path("/opt/nvcc")


def test_a_missing_tool_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "pip_cuda_dirs", tuple)
    monkeypatch.setattr(toolchain, "cuda_home", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.find_tool("nvdisasm") is None
