# SPDX-License-Identifier: Apache-2.0
"""A bulk tensor copy whose box starts off a 16-byte column traps on the device; the simulator says so."""

from __future__ import annotations

import numpy as np
import pytest
from tile_programs import Builder, region

from tilelang.analysis import copies
from tilelang.sim import simulate
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower


def stored_at(column: int):
    with Builder(128, (1,), params={"A": ((32, 32), "int32"), "B": ((40, 64), "int32")}) as b:
        A, B = b.args
        S = b.shared("S", (32, 32), "int32")
        b.copy(A, S)
        b.copy(S, region(B, (0, 32), (column, 32)))
    return b.func


def run(func):
    a, out = np.arange(1024, dtype=np.int32).reshape(32, 32), np.full((40, 64), -1, np.int32)
    return simulate(lower(func, ARCHS["sm_90a"]), [a, out]), a, out


@pytest.mark.parametrize("column", [0, 1, 4, 31])
def test_stores_at_any_column_are_right_and_clean(column: int) -> None:
    result, a, out = run(stored_at(column))
    assert not result.reports
    assert np.array_equal(out[:32, column : column + 32], a) and (out == -1).sum() == 40 * 64 - 1024


def test_a_box_off_the_16_byte_grid_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_start_obstacle", lambda outer, bits, values: None)
    result, _, _ = run(stored_at(1))
    assert result.kinds == {"misaligned"} and "column 1" in str(result)
