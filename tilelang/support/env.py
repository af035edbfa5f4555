# SPDX-License-Identifier: Apache-2.0
"""Every environment variable the project reads, declared once and typed.

A value is read when it is asked for, never at import, so that tests and programs may set it late:
`env.cache_dir.get()`. An unreadable value raises `BadVariable` naming the variable and what it takes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

__all__ = ["BadVariable", "EnvVar", "env"]

T = TypeVar("T")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


class BadVariable(ValueError):
    """An environment variable has a text that it does not take."""


@dataclass(frozen=True)
class EnvVar(Generic[T]):
    """One variable: its name, how its text is read, its default and its meaning. `also` is a second name of it."""

    name: str
    parse: Callable[[str], T]
    default: T
    doc: str
    also: str = ""

    def get(self) -> T:
        name, text = self.name, os.environ.get(self.name)
        if text is None and self.also:
            name, text = self.also, os.environ.get(self.also)
        if text is None:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise BadVariable(f"environment variable {name}={text!r}: {error}") from None


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("takes 1 or 0")


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _optional_path(text: str) -> Path | None:
    return _path(text) if text else None


def _optional_text(text: str) -> str | None:
    return text or None


def _count(text: str) -> int | None:
    """A number of processes; -1 and 0 mean none is given."""
    count = int(text)
    return count if count > 0 else None


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError("takes a number above 0 and up to 1")
    return share


class _Environment:
    """All variables, one attribute each."""

    target = EnvVar(
        "TILELANG_TARGET",
        _optional_text,
        None,
        "target when the program names none: cuda, cpu or sim; also TILELANG_DEFAULT_TARGET",
        "TILELANG_DEFAULT_TARGET",
    )
    cache_dir = EnvVar(
        "TILELANG_CACHE_DIR", _path, Path("~/.tilelang/cache").expanduser(), "where compiled kernels are kept"
    )
    cache_disabled = EnvVar(
        "TILELANG_DISABLE_CACHE", _flag, False, "1: neither read nor write the kernel cache on disk"
    )
    tuner_cache_disabled = EnvVar(
        "TILELANG_AUTO_TUNING_DISABLE_CACHE", _flag, False, "1: neither read nor write results of autotuners"
    )
    tuner_workers = EnvVar("TILELANG_AUTO_TUNING_CPU_COUNTS", _count, None, "processes in which an autotuner compiles")
    tuner_cpu_share = EnvVar(
        "TILELANG_AUTO_TUNING_CPU_UTILITIES", _share, 0.9, "share of the CPUs that it takes where no number is given"
    )
    tuner_most_workers = EnvVar("TILELANG_AUTO_TUNING_MAX_CPU_COUNT", _count, 16, "the most of them")
    pass_times = EnvVar("TILELANG_PASS_PROFILE", _flag, False, "1: log how long each pass takes")
    print_on_compilation = EnvVar("TILELANG_PRINT_ON_COMPILATION", _flag, False, "1: log each compilation")
    verbose = EnvVar("TILELANG_VERBOSE", _flag, False, "1: log what the compiler decides")
    libcuda = EnvVar(
        "TILELANG_LIBCUDA", _optional_text, None, "path of the CUDA driver library, instead of libcuda.so.1"
    )
    cuda_arch = EnvVar(
        "TILELANG_CUDA_ARCH", _optional_text, None, "architecture compiled for without a device, as sm_90a"
    )
    verify = EnvVar("TILELANG_VERIFY", _flag, False, "1: check the IR's spec before and after every pass")
    watchdog = EnvVar(
        "TILELANG_WATCHDOG", _flag, False, "1: waits on mbarriers that take 2 s say where they hang, and trap"
    )
    report_dir = EnvVar(
        "TILELANG_REPORT_DIR", _path, Path(tempfile.gettempdir()), "where reports on internal errors are written"
    )
    log_level = EnvVar("TILELANG_LOG_LEVEL", str, "WARNING", "level of the `tilelang` logger")
    nvcc = EnvVar("TILELANG_NVCC", _optional_text, None, "path of nvcc")
    cuda_home = EnvVar("CUDA_HOME", _optional_path, None, "CUDA toolkit folder")

    def all(self) -> dict[str, EnvVar]:
        """Variables by name, for `tilelang env` and the docs."""
        found = [v for v in vars(type(self)).values() if isinstance(v, EnvVar)]
        return {v.name: v for v in found}


env = _Environment()
