# SPDX-License-Identifier: Apache-2.0
"""The static estimate: right orders, waves, and programs that do not fit."""

from __future__ import annotations

import pytest
from tile_programs import Builder, gemm_program, region
from tvm import tirx

from tilelang.autotuner.estimate import DoesNotFit, estimate_ms


def test_larger_tiles_are_expected_to_be_faster() -> None:
    assert estimate_ms(gemm_program(128, 128)) < estimate_ms(gemm_program(64, 64, threads=128))


def test_a_pipeline_hides_latency() -> None:
    assert estimate_ms(gemm_program(stages=3)) < estimate_ms(gemm_program(stages=0))


def test_too_much_shared_memory_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match="shared memory"):
        estimate_ms(gemm_program(128, 128, 128, stages=6))


def test_trips_follow_the_block_index() -> None:
    """A triangle of work costs less than the full square."""

    def program(causal: bool) -> object:
        with Builder(128, (64,), {"A": ((4096, 64), "float16")}) as b:
            (A,), (bx,) = b.args, b.blocks
            As, acc = b.shared("As", (64, 64)), b.fragment("acc", (64, 64))
            with b.serial(bx + 1 if causal else tirx.const(64, "int32"), 2) as k:
                b.copy(region(A, (k * 64, 64), (0, 64)), As)
                b.gemm(As, As, acc)
        return b.func

    assert estimate_ms(program(True)) < estimate_ms(program(False))


def test_an_empty_grid_takes_no_time() -> None:
    with Builder(128, (0,), {"A": ((64, 64), "float16")}) as b:
        b.copy(b.args[0], b.shared("S", (64, 64)))
    assert estimate_ms(b.func) == 0.0
