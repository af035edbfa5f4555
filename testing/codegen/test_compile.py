# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tilelang.codegen import nvrtc
from tilelang.codegen.compile import CompileError, CompileOptions, compile_cuda, disassemble, parse_log
from tilelang.target.toolchain import find_tool, nvcc_path

LOG = """\
ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x in \
function 'main_kernel'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main_kernel' for 'sm_90a'
ptxas info    : Function properties for main_kernel
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, 48 bytes smem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
"""
KERNEL = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }'
COMPILERS = [
    pytest.param("nvrtc", marks=pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")),
    pytest.param("nvcc", marks=pytest.mark.skipif(nvcc_path() is None, reason="no nvcc")),
]


def test_the_report_of_ptxas_is_read() -> None:
    kernels, notes = parse_log(LOG)
    assert kernels["main_kernel"].registers == 168
    assert (kernels["main_kernel"].stack, kernels["main_kernel"].spill_stores, kernels["main_kernel"].spill_loads) == (
        16,
        12,
        8,
    )
    assert (kernels["main_kernel"].barriers, kernels["main_kernel"].smem) == (3, 48)
    assert kernels["other"].registers == 14
    assert [(n.code, n.kernel) for n in notes] == [("C7515", "main_kernel"), ("spill", "main_kernel")]


@pytest.mark.nvcc
@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_kernel_compiles(compiler: str) -> None:
    cubin = compile_cuda(KERNEL, "sm_90a", CompileOptions(compiler=compiler))
    assert cubin.data.startswith(b"\x7fELF")
    assert cubin.kernels["k"].registers > 0
    assert cubin.spill_bytes == 0
    assert ".entry k" in cubin.ptx


@pytest.mark.nvcc
@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_error_shows_what_the_compiler_said(compiler: str) -> None:
    with pytest.raises(CompileError, match="undeclared_thing"):
        compile_cuda("__device__ int f() { return undeclared_thing; }", "sm_90a", CompileOptions(compiler=compiler))


@pytest.mark.nvcc
@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="no nvdisasm")
def test_a_cubin_is_disassembled() -> None:
    assert "STG" in disassemble(compile_cuda(KERNEL, "sm_90a"))


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "file" / "cache"))
    nvrtc.header_dirs.cache_clear()
    try:
        folders = nvrtc.header_dirs()
        assert folders and (folders[0] / "cuda_fp16.h").is_file()
    finally:
        nvrtc.header_dirs.cache_clear()
