# SPDX-License-Identifier: Apache-2.0
"""What `inspect` says of loops and reductions."""

from __future__ import annotations

import re

import tilelang.language as T
from tilelang.tools.report import inspect_program


def softmax(rows, columns):
    @T.prim_func
    def main(X: T.Tensor((1024, columns), "float16"), Y: T.Tensor((1024, columns), "float16")):
        with T.Kernel(1024 // rows, threads=128) as b:
            x = T.alloc_fragment((rows, columns), "float32")
            m = T.alloc_fragment((rows,), "float32")
            T.copy(X[b * rows, 0], x)
            T.reduce_max(x, m, dim=1)
            for i, j in T.Parallel(rows, columns):
                x[i, j] = T.exp(x[i, j] - m[i])
            T.copy(x, Y[b * rows, 0])

    return main


def test_loops_copies_and_reductions_say_how_they_are_spread():
    report = inspect_program(softmax(64, 128), "sm_90a")
    facts = {f.what: f for f in report.loops}
    assert [f.what for f in report.loops] == ["copy 64x128", "reduce_max x -> m", "T.Parallel 64x128", "copy 64x128"]
    assert facts["copy 64x128"].spread == "64 elements in each of 128 threads, accesses of 16 bytes"
    assert facts["T.Parallel 64x128"].spread == "64 elements in each of 128 threads"
    # Which split of a row is cheapest is the business of layout inference.
    split = re.fullmatch(r"(\d+) elements in a thread, then (\d+) lanes by shuffles", facts["reduce_max x -> m"].spread)
    assert split is not None and int(split[1]) * int(split[2]) == 128
    lines = report.text().splitlines()
    at = lines.index("loops and reductions")
    assert lines[at + 2].split()[:4] == ["line", str(facts["reduce_max x -> m"].line), "reduce_max", "x"]


def test_rows_of_a_whole_block_are_reduced_across_warps():
    report = inspect_program(softmax(1, 4096), "sm_90a")
    spread = next(f.spread for f in report.loops if f.what.startswith("reduce"))
    assert spread == "32 elements in a thread, then 32 lanes by shuffles, then 4 warps through shared memory"
