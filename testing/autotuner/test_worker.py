# SPDX-License-Identifier: Apache-2.0
"""Worker processes leave kernels where this process finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilelang
import tilelang.language as T
from tilelang.autotuner.worker import compile_in_processes
from tilelang.codegen import compile as toolchain


@pytest.mark.nvcc
def test_a_kernel_compiled_by_a_worker_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache key survives the trip through serialised IR."""
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))

    @T.prim_func
    def main(x: T.Tensor((256,), "float32"), y: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            for i in T.Parallel(128):
                y[bx * 128 + i] = x[bx * 128 + i] + 1.0

    options = {"target": "cuda:sm_90a", "out_idx": [1]}
    assert compile_in_processes([main], [options], num_workers=1, timeout_s=300) == [""]

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("compiled twice")

    monkeypatch.setattr(toolchain, "compile_cuda", refuse)
    assert "__global__" in tilelang.compile(main, **options).get_kernel_source()
