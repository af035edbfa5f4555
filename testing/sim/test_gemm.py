# SPDX-License-Identifier: Apache-2.0
"""The hand-built GEMM: right under every policy, and every planted mistake is found."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from sim_gemm import build_gemm

from tilelang.sim import POLICIES, Program, SimResult, simulate

BF16 = ml_dtypes.bfloat16

# fault -> kinds of which one must be reported, under every policy given
FOUND = {
    "no-full-wait": {"race-wr", "uninit"},
    "no-empty-wait": {"race-ww"},
    "full-parity": {"race-wr", "deadlock"},
    "empty-parity": {"deadlock"},
    "tx-half": {"race-wr", "tx-count"},
    "tx-more": {"deadlock"},
    "no-proxy-fence": {"proxy-fence"},
    "late-proxy-fence": {"proxy-fence"},
    "no-epilogue-barrier": {"race-wr"},
    "desc-swizzle": {"layout"},
    "empty-count-low": {"race-ww", "race-rw", "deadlock"},
    "empty-count-high": {"deadlock"},
    "full-count": {"deadlock"},
    "no-empty-arrive": {"deadlock"},
    "load-next-stage": {"race-wr"},
    "read-next-stage": {"race-wr"},
    "no-wgmma-wait": {"wgmma-in-flight"},
    "wgmma-wait-1": {"wgmma-in-flight"},
    "no-commit": {"wgmma-in-flight"},
    "no-init-sync": {"barrier", "barrier-init"},
    "no-init-fence": {"barrier-init"},
    "no-wgmma-fence": {"wgmma-fence"},
    "no-bulk-wait": {"exit"},
}
ONLY_VALUES = ("epilogue-swizzle", "store-shifted")  # address mistakes that break no rule


@functools.cache
def program(fault: str = "") -> Program:
    return Program(build_gemm(fault))


def run(fault: str, m: int, n: int, k: int, policy: str, seed: int = 0) -> tuple[SimResult, float]:
    """The result and the largest error."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(BF16), rng.standard_normal((n, k)).astype(BF16)
    d = np.full((m, n), np.nan, BF16)
    result = simulate(program(fault), {"A": a, "B": b, "D": d}, policy=policy, seed=seed)
    want = a.astype(np.float32) @ b.astype(np.float32).T
    return result, float(np.nan_to_num(np.abs(d.astype(np.float32) - want), nan=np.inf).max())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", [(128, 128, 64), (130, 136, 328)])
def test_correct(shape: tuple[int, int, int], policy: str) -> None:
    result, error = run("", *shape, policy)
    assert not result.reports, result
    assert error < 0.3  # one bfloat16 rounding of values up to 70


@pytest.mark.parametrize(
    ("fault", "policy"),
    [
        *((f, "rr") for f in FOUND),
        *((f, "adv-last") for f in ("no-full-wait", "no-empty-wait", "wgmma-wait-1", "no-epilogue-barrier")),
    ],
)
def test_fault_is_found(fault: str, policy: str) -> None:
    result, _ = run(fault, 128, 128, 384, policy)
    assert result.kinds & FOUND[fault], result


@pytest.mark.parametrize("fault", ONLY_VALUES)
def test_wrong_addresses_show_in_values(fault: str) -> None:
    _, error = run(fault, 128, 128, 64, "rr")
    assert error > 1


def test_pitch_that_the_driver_refuses() -> None:
    result, _ = run("", 128, 130, 64, "rr")
    assert "tma" in result.kinds


def test_reports_name_buffers_and_barriers() -> None:
    result, _ = run("no-empty-arrive", 128, 128, 384, "rr")
    text = str(result)
    assert "empty[0]" in text and "no statement of the kernel arrives on empty" in text
    result, _ = run("no-proxy-fence", 128, 128, 64, "rr")
    assert "Cs bytes" in str(result)
