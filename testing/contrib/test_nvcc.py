# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tilelang.codegen import compile as toolchain
from tilelang.contrib import nvcc, nvrtc

TEXT = 'extern "C" __global__ void scale(float* a) { a[threadIdx.x] *= 2; }\n'


@pytest.mark.nvcc
def test_cuda_text_is_compiled(tmp_path):
    ptx = nvcc.compile_cuda(TEXT, target_format="ptx", arch="sm_90a", options="-O3 -lineinfo")
    assert b".target sm_90a" in ptx
    assert b".target sm_80" in nvcc.compile_cuda(TEXT, arch=80, options=["-O3"])
    cubin = nvrtc.compile_cuda(TEXT, "cubin", path_target=str(tmp_path / "a.cubin"))
    assert (tmp_path / "a.cubin").read_bytes() == cubin[:] and cubin[:4] == b"\x7fELF"
    assert "scale" in nvcc.get_ptx_from_source(TEXT) and "FMUL" in nvcc.get_sass_from_source(TEXT).replace(
        "FADD", "FMUL"
    )


@pytest.mark.nvcc
def test_what_does_not_compile_is_an_error():
    with pytest.raises(toolchain.CompileError, match="identifier"):
        nvcc.compile_cuda("__global__ void f() { nothing(); }")
    with pytest.raises(ValueError, match="ptx or cubin"):
        nvcc.compile_cuda(TEXT, "fatbin")


@pytest.mark.nvcc
def test_versions_and_paths():
    assert nvcc.get_cuda_version() >= (12, 0)
    assert nvcc.get_cuda_version(nvcc.find_cuda_path()) >= (12, 0)
    assert nvcc.get_nvcc_compiler().endswith("nvcc")


def test_a_toolkit_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(nvcc, "cuda_home", lambda: None)
    monkeypatch.setattr(nvcc, "nvcc_path", lambda: None)
    with pytest.raises(RuntimeError, match="set CUDA_HOME"):
        nvcc.find_cuda_path()
    with pytest.raises(RuntimeError, match="TILELANG_NVCC"):
        nvcc.get_nvcc_compiler()
    with pytest.raises(RuntimeError, match="no CUDA version found"):
        nvcc.get_cuda_version(str(tmp_path))


def test_questions_about_the_target():
    assert nvcc.have_pdl("cuda:sm_90a") and not nvcc.have_pdl("cuda:sm_80")
    assert nvcc.have_tensorcore(target="cuda:sm_80") and nvcc.have_int8("6.1") and nvcc.have_fp16("7.0")
    assert not nvcc.is_volta("cuda:sm_80") and not nvcc.is_turing("cuda:sm_80") and nvcc.have_cudagraph()
