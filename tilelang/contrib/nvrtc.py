# SPDX-License-Identifier: Apache-2.0
"""Public import path of NVRTC, through which kernels are compiled where it is there."""

from __future__ import annotations

from tilelang.codegen.nvrtc import is_available, version
from tilelang.contrib.nvcc import compile_cuda

__all__ = ["compile_cuda", "get_nvrtc_version", "is_available"]


def get_nvrtc_version() -> tuple[int, int]:
    """(major, minor). Raises `RuntimeError` without NVRTC."""
    if not is_available():
        raise RuntimeError("NVRTC was not found: pip install 'tilelang[cuda]'")
    return version()
