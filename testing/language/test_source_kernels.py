# SPDX-License-Identifier: Apache-2.0
"""CUDA text of the user's own: whole kernels, functions that a kernel calls, text in front of a launch."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower

SCALE = """
__device__ float twice(float x) { return 2.0f * x; }
extern "C" __global__ void __launch_bounds__(64) main_kernel(const float* A, float* B, int n) {
  __shared__ float tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  tile[threadIdx.x] = i < n ? A[i] : 0.0f;
  __syncthreads();
  if (i < n) B[i] = twice(tile[threadIdx.x]);
}
"""


def by_text(source=SCALE, entry="main_kernel"):
    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32"), n: T.int32):
        T.CUDASourceCodeKernel(2, threads=64, source_code_or_path=source, entry_name=entry)

    return main


def calling():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        T.import_source("__device__ float half_of(float x) { return 0.5f * x; }\n")
        with T.Kernel(1, threads=64, prelude="__device__ void put(float* p, float v) { *p = v; }\n"):
            tx = T.get_thread_binding()
            T.call_extern("void", "put", T.access_ptr(B[tx], "w"), T.call_extern("float32", "half_of", A[tx]))

    return main


def text(func):
    source = lower_to_cuda(lower(func, "sm_90a"), ARCHS["sm_90a"])
    compile_cuda(source.text, "sm_90a")
    return source


def test_a_kernel_from_text():
    source = text(by_text())
    (launch,) = source.kernels
    assert [p.name for p in launch.params[:2]] == ["A", "B"]
    assert (int(launch.grid[0]), int(launch.block[0])) == (2, 64)
    assert "tl_user_main_kernel(" in source.text


def test_a_kernel_from_a_file(tmp_path):
    file = tmp_path / "scale.cu"
    file.write_text(SCALE)
    assert "twice" in text(by_text(file)).text
    assert "twice" in text(by_text(str(file))).text


def test_a_kernel_in_a_with():
    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32"), n: T.int32):
        with T.CUDASourceCodeKernel(2, threads=64, source_code_or_path=SCALE):
            pass

    assert text(main).kernels


def test_functions_that_a_kernel_calls():
    source = text(calling()).text
    assert "half_of(" in source and "put((&(" in source


def test_names_that_the_text_does_not_have():
    with pytest.raises(ValueError, match="TL1005"):
        by_text(entry="other_kernel")


def test_targets_without_cuda_say_so():
    with pytest.raises(CpuUnsupported, match="tl_user_main_kernel"):
        tilelang.compile(by_text(), target="cpu")


@pytest.mark.gpu
def test_on_the_gpu():
    a, b = torch.rand(100, device="cuda"), torch.zeros(100, device="cuda")
    tilelang.compile(by_text(), target="cuda")(a, b, 90)
    assert torch.equal(b, torch.where(torch.arange(100, device="cuda") < 90, 2 * a, 0))
    c, d = torch.rand(64, device="cuda"), torch.zeros(64, device="cuda")
    tilelang.compile(calling(), target="cuda")(c, d)
    assert torch.equal(d, c / 2)
