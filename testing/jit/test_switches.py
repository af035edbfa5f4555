# SPDX-License-Identifier: Apache-2.0
"""What pass configs change in the code of a kernel."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import tilelang
import tilelang.language as T


@T.prim_func
def turned(A: T.Tensor((100,), "float32"), B: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float16")):
    with T.Kernel(2, threads=64) as b:
        t = T.get_thread_binding()
        S = T.alloc_shared((64,), "float32")
        U = T.alloc_shared((64, 64), "float16")
        S[t] = A[b * 64 + t]
        O[b, t] = S[63 - t]
        T.copy(B, U)
        for i, j in T.Parallel(64, 64):
            O[i, j] = U[j, i]


@T.prim_func
def product(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32"), D: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        d = T.alloc_fragment((64, 64), "float32")
        T.copy(A, S)
        T.gemm(S, S, c, clear_accum=True)
        T.copy(c, C)
        T.wgmma_gemm(S, S, d, clear_accum=True)
        T.wait_wgmma(0)
        T.copy(d, D)


def text_of(program, **options) -> str:
    keys = {key.replace("__", "."): value for key, value in options.items()}
    text = tilelang.compile(program, target="cuda:sm_90a", pass_configs=keys).get_kernel_source()
    return text[text.index('extern "C" __global__') :]


@pytest.mark.parametrize(
    ("key", "counted"),
    [
        ("tl__disable_thread_storage_sync", "tl_sync_threads()"),
        ("tl__disable_safe_memory_legalize", "< 100"),
        ("tir__disable_vectorize", "uint4"),
    ],
)
def test_a_switch_takes_away_what_it_names(key: str, counted: str) -> None:
    plain, without = text_of(turned), text_of(turned, **{key: True})
    assert without.count(counted) < plain.count(counted)
    assert text_of(turned, **{key: False}) == plain


def test_tile_statements_keep_their_barriers() -> None:
    assert text_of(turned, tl__disable_thread_storage_sync=True).count("tl_sync_threads()") >= 1


def test_products_without_wgmma_unless_it_is_named() -> None:
    plain, without = text_of(product), text_of(product, tl__disable_wgmma=True)
    assert "tl_mma" not in plain and "tl_mma" in without
    assert 0 < without.count("tl_wgmma_ss") < plain.count("tl_wgmma_ss")


def test_what_is_asked_for_is_told(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    logging.getLogger("tilelang").addHandler(caplog.handler)
    text_of(
        turned,
        tl__pass_profile=True,
        tl__ast_print_enable=True,
        tl__layout_visualization_enable=True,
        tl__layout_visualization_formats="txt",
        cuda__kernels_output_dir=str(tmp_path),
    )
    logging.getLogger("tilelang").removeHandler(caplog.handler)
    assert "pass lower_tile_ops: " in caplog.text
    assert "layout of U: shared(64,64)" in caplog.text
    assert "T.prim_func" in caplog.text
    assert "turned" in (tmp_path / "turned.cu").read_text()
