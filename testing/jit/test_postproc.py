# SPDX-License-Identifier: Apache-2.0
"""Hooks on CUDA text, and what clears the cache."""

from __future__ import annotations

import pytest

import tilelang
import tilelang.language as T
from tilelang import cache
from tilelang.engine import register_c_postproc, register_cuda_postproc, register_cuda_postproc_callback


@pytest.fixture(autouse=True)
def no_hook(monkeypatch, tmp_path):
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    yield
    register_cuda_postproc(None)


def double():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] *= 2

    return tilelang.compile(main, target="cuda")


@pytest.mark.nvcc
def test_a_hook_changes_what_is_compiled_and_no_cache_has_it():
    plain = double()
    seen = []

    @register_cuda_postproc_callback
    def hook(text, target):
        seen.append(str(target))
        return text + "// changed\n"

    changed = double()
    assert changed.kernel_source == plain.kernel_source + "// changed\n" and seen == ["cuda:sm_90a"]
    assert double() is not changed and len(seen) == 2
    register_cuda_postproc(lambda text, target: None)
    with pytest.raises(TypeError, match="returns the text to compile, got NoneType"):
        double()
    register_cuda_postproc(None)
    assert double() is plain
    cache.clear_cache()
    assert double().kernel_source == plain.kernel_source


def test_forms_of_the_decorator():
    first = register_cuda_postproc_callback(override=False)(lambda text, target: text)
    with pytest.raises(ValueError, match="there is a hook on CUDA text already"):
        register_cuda_postproc_callback(override=False)(lambda text, target: text)
    assert register_cuda_postproc_callback(True)(first) is first
    with pytest.raises(TypeError, match="a hook is a function"):
        register_cuda_postproc("text")
    with pytest.raises(ValueError, match="no C text is made"):
        register_c_postproc(first)


@pytest.mark.nvcc
def test_a_cleared_cache_is_empty(tmp_path):
    cache.clear_cache()
    kernel = double()
    assert list(tmp_path.glob("*/kernels/*"))
    cache.clear_cache()
    assert not list(tmp_path.glob("*/kernels/*"))
    assert double() is not kernel
