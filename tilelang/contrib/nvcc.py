# SPDX-License-Identifier: Apache-2.0
"""Questions about the CUDA target that programs ask, often at import time: none of them raises where there is no
device.
"""

from __future__ import annotations

import re
from typing import Any

from tilelang.jit.target import cuda_arch, resolve_target

__all__ = [
    "get_target_arch",
    "get_target_compute_version",
    "have_bf16",
    "have_fp8",
    "have_tma",
    "is_ampere",
    "is_hopper",
    "parse_compute_version",
]


def get_target_compute_version(target: Any = None) -> str:
    """Compute capability of the target as "9.0": the one it names, else the present device's, else the default's."""
    arch = (resolve_target(target).arch if target is not None else None) or cuda_arch()
    return f"{arch.sm // 10}.{arch.sm % 10}"


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """(9, 0) of "9.0". Raises `ValueError` for other text."""
    match = re.fullmatch(r"(\d+)\.(\d+)", compute_version)
    if match is None:
        raise ValueError(f"a compute version looks like '9.0', got {compute_version!r}")
    return int(match.group(1)), int(match.group(2))


def get_target_arch(compute_version: str | tuple[int, int]) -> str:
    """ "90a" of "9.0": the architecture digits with the suffix of family-specific features."""
    major, minor = parse_compute_version(compute_version) if isinstance(compute_version, str) else compute_version
    return f"{major}{minor}" + ("a" if major >= 9 else "")


def _version(target: Any) -> tuple[int, int]:
    return parse_compute_version(get_target_compute_version(target))


def have_tma(target: Any = None) -> bool:
    return _version(target) >= (9, 0)


def is_hopper(target: Any = None) -> bool:
    return _version(target) == (9, 0)


def is_ampere(target: Any = None) -> bool:
    return _version(target)[0] == 8


def have_bf16(compute_version: str) -> bool:
    return parse_compute_version(compute_version) >= (8, 0)


def have_fp8(compute_version: str) -> bool:
    return parse_compute_version(compute_version) >= (8, 9)
