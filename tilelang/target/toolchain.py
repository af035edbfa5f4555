# SPDX-License-Identifier: Apache-2.0
"""Where the CUDA tools are: NVRTC, nvcc, the disassemblers and the headers, from pip packages or a CUDA toolkit.

Nothing is looked up at import. A tool that is missing is None here; callers say what they needed it for.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import lru_cache
from pathlib import Path

from tilelang.support.env import env

__all__ = ["cuda_home", "find_tool", "include_dirs", "nvcc_path", "pip_cuda_dirs"]


@lru_cache(maxsize=1)
def pip_cuda_dirs() -> tuple[Path, ...]:
    """Folders of NVIDIA's pip packages (`nvidia/cu13`, `nvidia/cuda_nvcc`, ...), in sorted order."""
    found: list[Path] = []
    for entry in sys.path:
        root = Path(entry or ".") / "nvidia"
        if root.is_dir():
            found.extend(sorted(p for p in root.iterdir() if p.is_dir()))
    return tuple(found)


def cuda_home() -> Path | None:
    """The CUDA toolkit folder: CUDA_HOME, CUDA_PATH, the one of nvcc on PATH, /usr/local/cuda."""
    home = env.cuda_home.get()
    candidates = [home] if home else []
    if os.environ.get("CUDA_PATH"):
        candidates.append(Path(os.environ["CUDA_PATH"]))
    nvcc = shutil.which("nvcc")
    if nvcc:
        root = Path(nvcc).resolve().parent.parent
        if (root / "include" / "cuda.h").is_file():  # nvcc may be a script that stands among other programs
            candidates.append(root)
    candidates.append(Path("/usr/local/cuda"))
    return next((c for c in candidates if c.is_dir()), None)


def find_tool(name: str) -> Path | None:
    """Path of nvcc, nvdisasm, cuobjdump or ptxas, or None. pip packages first: they match NVRTC's version."""
    for folder in pip_cuda_dirs():
        tool = folder / "bin" / name
        if tool.is_file():
            return tool
    home = cuda_home()
    if home and (home / "bin" / name).is_file():
        return home / "bin" / name
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def nvcc_path() -> Path | None:
    """nvcc: TILELANG_NVCC, else of the toolkit, else of a pip package."""
    named = env.nvcc.get()
    if named:
        return Path(named)
    home = cuda_home()
    if home and (home / "bin" / "nvcc").is_file():
        return home / "bin" / "nvcc"
    return find_tool("nvcc")


def include_dirs() -> tuple[Path, ...]:
    """Folders with cuda_fp16.h on this machine, best first; empty when only NVRTC's bundled headers are there."""
    candidates = [folder / "include" for folder in pip_cuda_dirs()]
    home = cuda_home()
    if home:
        candidates.append(home / "include")
    return tuple(c for c in candidates if (c / "cuda_fp16.h").is_file())
