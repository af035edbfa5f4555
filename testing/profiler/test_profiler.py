# SPDX-License-Identifier: Apache-2.0
"""What a profiler compares and times: outputs, tensors written in place, inputs of every layout."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.profiler import assert_close, do_bench
from tilelang.profiler.supply import copied


def doubled(out_idx=None, target="cpu"):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = A[i] * 2

    return tilelang.compile(main, out_idx=out_idx, target=target)


def incremented():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                A[i] += 1

    return tilelang.compile(main, target="cpu")


def write_twice(a, b):
    b.copy_(a * 2)


def write_thrice(a, b):
    b.copy_(a * 3)


def test_a_reference_in_place_is_compared():
    profiler = doubled().get_profiler()
    profiler.assert_allclose(write_twice, atol=0, rtol=0)
    with pytest.raises(AssertionError, match="input 1: 6. of 64 elements differ"):
        profiler.assert_allclose(write_thrice)


def test_what_only_the_kernel_writes_is_compared():
    def other(a, b):
        a[0] += 1e-4

    with pytest.raises(AssertionError, match="input 1"):
        doubled().get_profiler().assert_allclose(other)


def test_nothing_to_compare_is_an_error():
    with pytest.raises(AssertionError, match="nothing to compare"):
        doubled().get_profiler().assert_allclose(lambda a, b: None)


def test_outputs_without_out_idx():
    with pytest.raises(AssertionError, match="0 outputs, the reference 1; out_idx says"):
        doubled().get_profiler().assert_allclose(lambda a, b: a * 2)


def test_the_reference_sees_what_the_kernel_saw():
    def once(a):
        a += 1

    incremented().get_profiler().assert_allclose(once, atol=0, rtol=0)
    incremented().get_profiler().assert_consistent(repeat=3)


def test_copies_keep_strides():
    gaps = torch.arange(64.0).as_strided((4, 4), (16, 2))
    copy = copied(gaps)
    assert copy.stride() == (16, 2) and torch.equal(copy, gaps) and copy.data_ptr() != gaps.data_ptr()
    assert torch.equal(copied(torch.ones(1).expand(3)), torch.ones(3))
    assert copied(3) == 3


def test_nan_counts_as_different_where_asked():
    nan = torch.tensor([float("nan")])
    assert_close(nan, nan)
    with pytest.raises(AssertionError, match="1 of 1"):
        assert_close(nan, nan, equal_nan=False)


@pytest.mark.parametrize("wanted", [{"quantiles": [0.5]}, {"return_mode": "median"}])
def test_cupti_gives_the_mean_alone(wanted):
    with pytest.raises(ValueError, match="backend cupti gives the mean alone"):
        do_bench(lambda: None, backend="cupti", **wanted)


def test_quantiles_are_shares():
    with pytest.raises(ValueError, match="numbers from 0 to 1"):
        do_bench(lambda: None, quantiles=[50])


def test_a_cuda_kernel_without_a_device(monkeypatch):
    kernel = doubled([1], "cuda")
    monkeypatch.setattr("tilelang.profiler.profiler.why_no_device", lambda: "there is no device")
    for ask in (kernel.get_profiler().do_bench, kernel.run_once):
        with pytest.raises(RuntimeError, match='there is no device; a kernel of target="cpu"'):
            ask()
