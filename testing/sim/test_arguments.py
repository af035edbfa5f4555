# SPDX-License-Identifier: Apache-2.0
"""What `simulate` refuses is named; the exact texts of its catalogue entries are in testing/errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.language as T
from tilelang.sim import Program, simulate
from tilelang.sim.errors import BadGrid, BlockOutside, NoBlocks, UnknownOption
from tilelang.transform.pipeline import lower


@T.prim_func
def scaled(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32"), s: T.float32, n: T.int32):
    with T.Kernel(4, threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] * s + n


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(lower(scaled, "sm_90a"))


def run(program: Program, s: Any = 2.0, n: Any = 1, **options: Any) -> np.ndarray:
    out = np.zeros(256, np.float32)
    assert not simulate(program, [np.ones(256, np.float32), out, s, n], **options).reports
    return out


@pytest.mark.parametrize("grid", [(0,), (-2, 1, 1), (), (1, 1, 1, 1), 4, "4", (1.5,)])
def test_a_grid_has_blocks(program: Program, grid: Any) -> None:
    with pytest.raises(BadGrid, match="is no grid of blocks"):
        run(program, grid=grid)


@pytest.mark.parametrize("blocks", [[], [1], "some", [()], [(0, 0, 0, 0)], [("x",)], None, 3])
def test_blocks_are_chosen(program: Program, blocks: Any) -> None:
    with pytest.raises(NoBlocks, match="which blocks to run"):
        run(program, blocks=blocks)


@pytest.mark.parametrize("block", [(9, 0, 0), (-1, 0, 0), (4,), (0, 1)])
def test_chosen_blocks_are_there(program: Program, block: Any) -> None:
    with pytest.raises(BlockOutside, match="its grid is"):
        run(program, blocks=[(0, 0, 0), block])


def test_chosen_blocks_run_alone(program: Program) -> None:
    for blocks in ([(1,), (3, 0, 0)], np.array([[1, 0, 0], [3, 0, 0]])):
        assert run(program, blocks=blocks).reshape(4, 64).any(1).tolist() == [False, True, False, True]
    assert run(program, grid=(2,)).reshape(4, 64).any(1).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"seconds": "x"}, TypeError, "seconds must be a number, got 'x'"),
        ({"seconds": -1}, ValueError, "seconds must be at least 0, got -1"),
        ({"seconds": float("nan")}, ValueError, "seconds must be at least 0, got nan"),
        ({"seed": "x"}, TypeError, "seed must be an integer, got 'x'"),
        ({"s": "x"}, TypeError, "argument s must be a number of type float32, got 'x'"),
        ({"n": None}, TypeError, "argument n must be a number of type int32, got None"),
        ({"n": 1.5}, TypeError, "argument n must be a number of type int32, got 1.5"),
        ({"strict": True}, UnknownOption, "did you mean 'strict_proxy'"),
        ({"strict_proxy": False}, UnknownOption, "a Program was made with them"),
    ],
)
def test_the_argument_is_named(program: Program, given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(program, **given)


def test_scalars_of_other_types(program: Program) -> None:
    assert (run(program, np.float32(2), np.int64(1)) == 3).all() and (run(program, 2, True) == 3).all()


def test_only_what_is_written_must_be_writeable(program: Program) -> None:
    fixed, out = np.ones(256, np.float32), np.zeros(256, np.float32)
    fixed.setflags(write=False)
    assert not simulate(program, [fixed, out, 1.0, 1]).reports and (out == 2).all()
    with pytest.raises(ValueError, match="argument B is written by scaled, and is a read-only array"):
        simulate(program, [out, fixed, 1.0, 1])
