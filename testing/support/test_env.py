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


def test_two_names_of_a_variable(monkeypatch):
    monkeypatch.delenv("TILELANG_TARGET", raising=False)
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "sim")
    assert tilelang.env.target.get() == "sim"
    monkeypatch.setenv("TILELANG_TARGET", "cpu")
    assert tilelang.env.target.get() == "cpu"


def test_numbers_of_processes(monkeypatch):
    monkeypatch.setenv("TILELANG_AUTO_TUNING_CPU_COUNTS", "-1")
    assert tilelang.env.tuner_workers.get() is None
    monkeypatch.setenv("TILELANG_AUTO_TUNING_CPU_UTILITIES", "1.5")
    with pytest.raises(ValueError, match="above 0 and up to 1"):
        tilelang.env.tuner_cpu_share.get()


def test_how_many_processes_compile(monkeypatch):
    from tilelang.autotuner.search import _default_workers

    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64))
    assert _default_workers() == 16
    monkeypatch.setenv("TILELANG_AUTO_TUNING_MAX_CPU_COUNT", "-1")
    assert _default_workers() == 57
    monkeypatch.setenv("TILELANG_AUTO_TUNING_CPU_UTILITIES", "0.5")
    assert _default_workers() == 32


def test_times_of_passes_are_asked_for(monkeypatch):
    from tilelang.support.options import CompileOptions

    assert not CompileOptions().pass_times
    monkeypatch.setenv("TILELANG_PASS_PROFILE", "1")
    assert CompileOptions().pass_times
