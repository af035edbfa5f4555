# SPDX-License-Identifier: Apache-2.0
"""One block of the examples' kernels, with all of its pipeline, is simulated in seconds (`pytest -s` prints them)."""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.sim import Program
from tilelang.transform.pipeline import lower

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_SECONDS = 20.0  # of processor time: what a test of a kernel may take on a small machine

KERNELS = {
    "gemm": (
        "gemm/example_gemm.py", "matmul", (4096, 4096, 4096), (0, 0, 0),
        [((4096, 4096), ml_dtypes.bfloat16)] * 2, ((4096, 4096), ml_dtypes.bfloat16),
    ),
    "attention": (
        "flash_attention/example_mha_fwd_bhsd.py", "flashattn", (1, 4, 2048, 2048, 128, True), (15, 0, 0),
        [((1, 4, 2048, 128), np.float16)] * 3, ((1, 4, 2048, 128), np.float16),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_block_takes_seconds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, factory, arguments, block, inputs, output = KERNELS[name]
    monkeypatch.syspath_prepend((EXAMPLES / file).parent)  # where an example finds its neighbours
    module: dict[str, Any] = runpy.run_path(str(EXAMPLES / file))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32).astype(dtype) for shape, dtype in inputs]
    arrays.append(np.zeros(*output))
    start = time.process_time()
    program = Program(lower(module[factory].get_tir(*arguments), "sm_90a"))
    reports, stats = program.run(arrays, blocks=[block])
    seconds = time.process_time() - start
    print(f"{name}: {stats['ctas']} block, {stats['steps']} steps, {seconds:.1f} s of processor time")
    assert not reports and stats["ctas"] == 1
    assert np.isfinite(arrays[-1].astype(np.float32)).all() and np.any(arrays[-1] != 0)
    assert seconds < MOST_SECONDS
