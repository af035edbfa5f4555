# SPDX-License-Identifier: Apache-2.0
"""What programs do with a kernel besides calling it: copy, pickle, read."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import tilelang
import tilelang.language as T

TARGETS = ["cpu", "sim", "cuda"]


def scaled(target, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), s: T.float32, B: T.Tensor((64,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = A[i] * T.cast(s, dtype)

    return tilelang.compile(main, out_idx=[2], target=target, pass_configs={"tl.disable_tma_lower": True})


@pytest.mark.parametrize("target", TARGETS)
def test_a_pickled_kernel_is_its_program(target):
    kernel = scaled(target)
    loaded = pickle.loads(pickle.dumps(kernel))
    assert loaded is kernel  # the same request, in the same process
    assert str(loaded.target) == str(kernel.target) and loaded.options.tma is False and loaded.out_idx == [2]


def test_a_module_that_holds_a_kernel_is_copied():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = scaled("cpu")
            self.factor = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return self.kernel(x, self.factor.item())

    module = Scale()
    twin = copy.deepcopy(module)
    assert twin.kernel is module.kernel and twin.factor is not module.factor
    assert twin(torch.ones(64)).tolist() == [2.0] * 64


@pytest.mark.parametrize("target", TARGETS)
def test_sources_by_every_name(target):
    kernel = scaled(target)
    texts = {kernel.kernel_source, kernel.get_kernel_source(), kernel.artifact.kernel_source}
    texts |= {kernel.adapter.get_kernel_source(), kernel.adapter.get_kernel_source(kernel_only=True)}
    assert len(texts) == 1
    hosts = {kernel.host_source, kernel.get_host_source(), kernel.adapter.get_host_source()}
    assert len(hosts) == 1
    assert kernel.get_kernel_source(kernel_only=False) == f"{kernel.kernel_source}\n{kernel.host_source}"
    assert kernel.torch_function is kernel


def test_what_a_parameter_says_of_itself():
    a, s, b = scaled("cpu", "float8_e4m3fn").params
    assert (a.torch_dtype(), a.is_float8(), a.is_unsigned(), a.is_boolean(), a.is_scalar()) == (
        torch.float8_e4m3fn,
        True,
        False,
        False,
        False,
    )
    assert s.is_scalar() and s.torch_dtype() is torch.float32


def test_a_result_of_ones_own_search():
    kernel = scaled("cpu")
    assert kernel.update_tuner_result(0.5, {"block": 64}, 1.0) is kernel
    assert kernel.get_tuner_result() == (0.5, {"block": 64}, 1.0)
