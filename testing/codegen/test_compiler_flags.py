# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tilelang.codegen.compile import CompileOptions, compile_cuda
from tilelang.codegen.compiler_flags import for_nvrtc


@pytest.mark.parametrize(
    "given, wanted",
    [
        (["-O3"], ["--ptxas-options=-O3"]),
        (["-O", "2", "--optimize=1"], ["--ptxas-options=-O2", "--ptxas-options=-O1"]),
        (["-Xptxas", "-v", "-Xptxas=-dlcm=cg"], ["--ptxas-options=-v", "--ptxas-options=-dlcm=cg"]),
        (["--ptxas-options=-v,-O3"], ["--ptxas-options=-v", "--ptxas-options=-O3"]),
        (["-Xcompiler", "-fPIC", "--compiler-options=-Wall", "-t", "4", "--threads=2"], []),
        (["--expt-relaxed-constexpr", "--expt-extended-lambda", "-g", "-lcuda", "-L/usr/lib"], []),
        (["-lineinfo", "-DX=1", "-use_fast_math", "-maxrregcount=64"],) * 2,
        (["-unheard-of", "--made=up"],) * 2,
    ],
)
def test_flags_of_nvcc_mean_the_same_to_nvrtc(given, wanted):
    assert for_nvrtc(given) == wanted


@pytest.mark.nvcc
def test_the_compiler_takes_what_programs_give():
    flags = ["-O3", "--expt-relaxed-constexpr", "--use_fast_math", "-Xptxas", "-v,-O3", "-Xcompiler", "-fPIC", "-DX"]
    text = '\nextern "C" __global__ void k(float* a) { a[0] = 1; }\n'
    assert compile_cuda(text, "sm_90a", CompileOptions(extra=tuple(flags))).data
