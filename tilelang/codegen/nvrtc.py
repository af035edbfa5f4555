# SPDX-License-Identifier: Apache-2.0
"""NVRTC through cuda-bindings: availability, headers, one compilation.

NVRTC 13.3 and later carry the CUDA headers with them; they are unpacked once into the cache folder, so that pip
packages alone suffice; where that folder cannot be written, into one of this process. Older ones use the headers of a
toolkit or of the `nvidia-cuda-runtime` package.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilelang.support.env import env
from tilelang.target.toolchain import include_dirs

__all__ = ["compile_program", "header_dirs", "is_available", "version"]


@lru_cache(maxsize=1)
def _bindings() -> Any | None:
    """The `cuda.bindings.nvrtc` module with a library behind it, or None."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError:
        return None
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:  # the bindings are there, libnvrtc is not
        return None
    return nvrtc


def is_available() -> bool:
    return _bindings() is not None


@lru_cache(maxsize=1)
def version() -> tuple[int, int]:
    """(major, minor); (0, 0) without NVRTC."""
    nvrtc = _bindings()
    if nvrtc is None:
        return (0, 0)
    _, major, minor = nvrtc.nvrtcVersion()
    return (int(major), int(minor))


def _headers_in(folder: Path, name: str) -> Path:
    """`name` in a folder, where it is there or can be made; else in one that lasts as long as this process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / name).is_dir() or os.access(folder, os.W_OK):
            return folder / name
    except OSError:
        pass
    own = tempfile.mkdtemp(prefix="tilelang-headers-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own) / name


@lru_cache(maxsize=1)
def header_dirs() -> tuple[Path, ...]:
    """Include folders for NVRTC: its own headers, else those of the machine."""
    nvrtc = _bindings()
    if nvrtc is not None and hasattr(nvrtc, "nvrtcInstallBundledHeaders"):
        folder = _headers_in(env.cache_dir.get() / "headers", "nvrtc-{}.{}".format(*version()))
        skip_if_exists = 0  # NVRTC_INSTALL_HEADERS_SKIP_IF_EXISTS
        try:
            result = nvrtc.nvrtcInstallBundledHeaders(str(folder).encode(), skip_if_exists)[0]
        except RuntimeError:  # a libnvrtc older than the bindings
            result = -1
        if int(result) == 0:
            return (folder, folder / "cccl")
    return tuple(d for root in include_dirs()[:1] for d in (root, root / "cccl"))


def _text(get_size: Any, get: Any, program: Any) -> bytes:
    error, size = get_size(program)
    if int(error) != 0 or size <= 1:
        return b""
    buffer = b" " * size
    get(program, buffer)
    return buffer


def compile_program(text: str, flags: list[str]) -> tuple[bool, bytes, str, str]:
    """(succeeded, cubin, log, PTX)."""
    nvrtc = _bindings()
    assert nvrtc is not None
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
        log = (
            _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            .rstrip(b"\0")
            .decode(errors="replace")
        )
        if int(result) != 0:
            return False, b"", log or str(nvrtc.nvrtcGetErrorString(result)[1]), ""
        cubin = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0").decode(errors="replace")
        return True, cubin, log, ptx
    finally:
        nvrtc.nvrtcDestroyProgram(program)
