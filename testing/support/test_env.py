# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

import tilelang


def test_variables_by_both_names(monkeypatch, tmp_path):
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    assert tilelang.env.TILELANG_CACHE_DIR == tilelang.env.cache_dir.get() == Path(tmp_path)
    assert "TILELANG_CACHE_DIR" in dir(tilelang.env) and "cache_dir" in dir(tilelang.env)


def test_a_variable_that_nobody_reads():
    with pytest.raises(AttributeError, match="reads no environment variable TILELANG_NOTHING"):
        tilelang.env.TILELANG_NOTHING  # noqa: B018
