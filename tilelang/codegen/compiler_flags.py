# SPDX-License-Identifier: Apache-2.0
"""Flags of nvcc, as programs give them, for NVRTC: the same meaning where NVRTC spells it otherwise, nothing where the
flag is about host code or files, which NVRTC does not make. All others go through, so that NVRTC says what it rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

__all__ = ["for_nvrtc"]

# Host code, files and processes of nvcc; what -default-device says already; what is always reported.
_NOT_OF_DEVICE_CODE = {
    *("expt-relaxed-constexpr", "extended-lambda", "expt-extended-lambda", "g", "debug", "k", "keep", "shared"),
    *("res-usage", "resource-usage", "allow-unsupported-compiler", "v", "verbose"),
}
_WITH_VALUE = {
    *("Xcompiler", "compiler-options", "t", "threads", "ccbin", "compiler-bindir", "keep-dir", "Xlinker"),
    *("linker-options", "l", "library", "L", "library-path"),
}
_LIBRARY = re.compile(r"-L\S+|-l(?!ineinfo)\S+")
_LEVEL = re.compile(r"-+(?:O|optimize)=?(\d)")


def for_nvrtc(flags: Sequence[str]) -> list[str]:
    """`["-O3", "-Xcompiler", "-fPIC", "-lineinfo"]` as `["--ptxas-options=-O3", "-lineinfo"]`."""
    return [translated for flag in _joined(flags) for translated in _one(*flag)]


def _joined(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(flag, value): a value stands behind "=" or is the next element."""
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.partition("=")
        takes_next = name.lstrip("-") in {*_WITH_VALUE, "O", "optimize", "Xptxas", "ptxas-options"}
        yield (name, next(rest, "")) if takes_next and not equals else (name, value)


def _one(name: str, value: str) -> list[str]:
    whole, word = f"{name}={value}" if value else name, name.lstrip("-")
    if word in _NOT_OF_DEVICE_CODE or word in _WITH_VALUE or _LIBRARY.fullmatch(whole):
        return []
    if word in ("Xptxas", "ptxas-options"):
        return [f"--ptxas-options={part}" for part in value.split(",")]
    level = _LEVEL.fullmatch(whole)
    return [f"--ptxas-options=-O{level[1]}"] if level else [whole]
