# SPDX-License-Identifier: Apache-2.0
"""Values between two constants: as extrema that NaN passes, and left to conversions that saturate."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1])
def clamped(low, high, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), dtype)):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(64, 64):
                C[i, j] = T.clamp(A[i, j], low, high)

    return main


def values() -> torch.Tensor:
    torch.manual_seed(0)
    a = torch.randn(64, 64) * 400
    a[0, :8] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 448.0, -448.0, 1e-40])
    return a


def source(low: float, high: float, dtype: str = "float32") -> str:
    text = clamped.with_options(target="cuda:sm_90a").get_kernel_source(low, high, dtype)
    return text[text.rindex("__launch_bounds__") :]


@pytest.mark.parametrize("limits", [(-448.0, 448.0), (0.0, 6.0), (2.0, -1.0)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_limits(target: str, limits: tuple[float, float]) -> None:
    a, (low, high) = values(), limits
    got = clamped.with_options(target=target)(low, high)(a)
    want = torch.where(a < low, low, torch.where(a > high, high, a))
    torch.testing.assert_close(got, want, rtol=0.0, atol=0.0, equal_nan=True)
    assert torch.equal(got.signbit(), want.signbit())


def test_two_instructions_where_no_limit_is_zero() -> None:
    assert "tl_min_nan(tl_max_nan(" in source(-448.0, 448.0)
    assert "tl_m" not in source(0.0, 6.0) and "tl_m" not in source(2.0, -1.0)


@pytest.mark.parametrize(
    ("dtype", "limit", "text"),
    [
        ("float8_e4m3fn", 448.0, "tl_to_fp8x4_e4m3(*(float4*)"),
        ("float8_e4m3fn", 500.0, "tl_to_fp8x4_e4m3(*(float4*)"),
        ("float8_e4m3fn", 400.0, "tl_convert_e4m3x4("),
        ("float8_e5m2", 500.0, "tl_convert_e5m2x4("),
        ("float8_e5m2", 57344.0, "tl_convert_e5m2x4("),
        ("float8_e5m2", 60000.0, "tl_to_fp8x4_e5m2("),
    ],
)
def test_numbers_are_converted_in_pairs_that_saturate_where_they_may(dtype: str, limit: float, text: str) -> None:
    assert text in source(-limit, limit, dtype)
    a = values()
    got, want = (clamped.with_options(target=target)(-limit, limit, dtype)(a) for target in ("sim", "cpu"))
    torch.testing.assert_close(got.float(), want.float(), rtol=0.0, atol=0.0, equal_nan=True)


def test_limits_that_the_conversion_has_take_no_instructions() -> None:
    assert "tl_m" not in source(-448.0, 448.0, "float8_e4m3fn")
    assert "tl_m" not in source(-500.0, 448.0, "float8_e4m3fn")
    assert "tl_m" not in source(-57344.0, 57344.0, "float8_e5m2")
    assert "tl_min_nan(tl_max_nan(" in source(-400.0, 400.0, "float8_e4m3fn")
    assert "tl_min_nan(tl_max_nan(" in source(-448.0, 400.0, "float8_e4m3fn")
