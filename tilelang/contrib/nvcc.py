# SPDX-License-Identifier: Apache-2.0
"""Questions about the CUDA target that programs ask, often at import time: none of them raises where there is no
device.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tilelang.codegen import nvrtc
from tilelang.codegen.compile import CompileOptions, disassemble
from tilelang.codegen.compile import compile_cuda as _compile
from tilelang.jit.target import cuda_arch, resolve_target
from tilelang.target.toolchain import cuda_home, nvcc_path

__all__ = [
    "compile_cuda",
    "find_cuda_path",
    "get_cuda_version",
    "get_nvcc_compiler",
    "get_ptx_from_source",
    "get_sass_from_source",
    "get_target_arch",
    "get_target_compute_version",
    "have_bf16",
    "have_cudagraph",
    "have_fp8",
    "have_fp16",
    "have_int8",
    "have_pdl",
    "have_tensorcore",
    "have_tma",
    "is_ampere",
    "is_hopper",
    "is_turing",
    "is_volta",
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


def have_fp16(compute_version: str) -> bool:
    return parse_compute_version(compute_version) >= (5, 3)


def have_int8(compute_version: str) -> bool:
    """Has it dot products of four int8?"""
    return parse_compute_version(compute_version) >= (6, 1)


def have_tensorcore(compute_version: str | None = None, target: Any = None) -> bool:
    return (parse_compute_version(compute_version) if compute_version else _version(target)) >= (7, 0)


def have_cudagraph() -> bool:
    """True: every CUDA that kernels are compiled with has graphs."""
    return True


def have_pdl(target: Any = None) -> bool:
    """May a kernel start while the one in front of it ends?"""
    return _version(target) >= (9, 0)


def is_volta(target: Any = None) -> bool:
    return (7, 0) <= _version(target) < (7, 5)


def is_turing(target: Any = None) -> bool:
    return _version(target) == (7, 5)


def find_cuda_path() -> str:
    """The folder of the CUDA toolkit. Raises `RuntimeError` where there is none: NVRTC of pip packages needs none."""
    home = cuda_home()
    if home is None:
        raise RuntimeError("no CUDA toolkit found: set CUDA_HOME (kernels compile without one, through NVRTC)")
    return str(home)


def get_cuda_version(cuda_path: str | None = None) -> tuple[int, int]:
    """(major, minor) of the toolkit in `cuda_path`, or of what kernels are compiled with. Raises `RuntimeError` where
    it cannot be found out."""
    if cuda_path is None and nvrtc.is_available():
        return nvrtc.version()
    home = Path(cuda_path) if cuda_path is not None else cuda_home()
    header = home / "include" / "cuda.h" if home is not None else None
    found = re.search(r"#define CUDA_VERSION (\d+)", header.read_text()) if header and header.is_file() else None
    if found is None:
        raise RuntimeError(f"no CUDA version found in {home}")
    return int(found[1]) // 1000, int(found[1]) % 1000 // 10


def get_nvcc_compiler() -> str:
    """The path of nvcc. Raises `RuntimeError` where there is none."""
    path = nvcc_path()
    if path is None:
        raise RuntimeError("nvcc was not found: set TILELANG_NVCC or CUDA_HOME (kernels compile through NVRTC without)")
    return str(path)


def compile_cuda(
    code: str,
    target_format: str = "ptx",
    arch: Any = None,
    options: str | list[str] | None = None,
    path_target: str | None = None,
    verbose: bool = False,
) -> bytearray:
    """PTX or cubin of CUDA text, for `arch` ("sm_90a", 90, or the target's), also written to `path_target`.

    Flags of nvcc are `options`; `verbose` prints nothing more: a text that does not compile is an error with the whole
    report. Raises `ValueError` for other formats.
    """
    if target_format not in ("ptx", "cubin"):
        raise ValueError(f"target_format is ptx or cubin, got {target_format!r}")
    given = [options] if isinstance(options, str) else list(options or [])
    cubin = _compile(code, _arch(arch), CompileOptions(extra=tuple(flag for text in given for flag in text.split())))
    made = bytearray(cubin.ptx.encode() if target_format == "ptx" else cubin.data)
    if path_target is not None:
        Path(path_target).write_bytes(made)
    return made


def _arch(arch: Any) -> Any:
    """The architecture of "sm_90a", "90a", 90 or None."""
    if arch is None:
        return cuda_arch()
    return f"sm_{arch}" if not str(arch).startswith("sm_") else arch


def get_ptx_from_source(code: str, compile_flags: list[str] | None = None, verbose: bool = False) -> str:
    """PTX of CUDA text for the target."""
    return compile_cuda(code, "ptx", options=compile_flags, verbose=verbose).decode()


def get_sass_from_source(code: str, compile_flags: list[str] | None = None, verbose: bool = False) -> str:
    """SASS of CUDA text for the target, by nvdisasm."""
    return disassemble(bytes(compile_cuda(code, "cubin", options=compile_flags, verbose=verbose)))
