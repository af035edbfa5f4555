# SPDX-License-Identifier: Apache-2.0
"""Random tile programs mean the same to numpy, the cpu target and simulated devices, whose races are looked for.

`campaign.py` runs more of them. What it found is below as small programs.
"""

from __future__ import annotations

import pytest
from fuzz_program import FuzzProgram
from fuzz_run import differences, outcome, run_text
from fuzz_strategies import Seeded, fuzz_programs, make_program
from hypothesis import HealthCheck, Phase, event, given, settings

# Seeds of programs that differ from each other, each a second or two.
SEEDS = (3, 8, 19, 23, 31, 42, 57, 64, 72, 88, 171, 211)


@pytest.mark.parametrize("seed", SEEDS)
def test_seeded_programs(seed: int) -> None:
    what, text = outcome(make_program(Seeded(seed)))
    assert what != "differs", f"seed {seed}: {text}"


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(fuzz_programs())
def test_drawn_programs(program) -> None:
    what, text = outcome(program, verified=False)
    event(what)
    assert what != "differs", text


def test_a_wrong_program_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: numpy gives something else."""
    right = FuzzProgram.expected
    monkeypatch.setattr(FuzzProgram, "expected", lambda self: {n: a + 1 for n, a in right(self).items()})
    assert differences(make_program(Seeded(SEEDS[0])), verified=False).startswith("cpu: ")


FOUND = {
    # The second 64-byte box of 35 rows began at 2240 bytes; versions of 35 rows lost the phase of their swizzle.
    "boxes_of_odd_rows": """
@T.prim_func
def main(A: T.Tensor((70, 32), "int32"), B: T.Tensor((140, 64), "float16"), O: T.Tensor((70, 32), "int32"),
         P: T.Tensor((35, 64), "float16")):
    with T.Kernel(2, threads=96) as by:
        s = T.alloc_shared((35, 32), "int32")
        t = T.alloc_shared((35, 64), "float16")
        f = T.alloc_fragment((35, 64), "float16")
        for i, j in T.Parallel(35, 32):
            s[i, j] = A[by * 35 + i, j] + i
        T.copy(s, O[by * 35, 0])
        T.clear(f)
        for k in T.Pipelined(4, num_stages=3):
            T.copy(B[k * 35, 0], t)
            for i, j in T.Parallel(35, 64):
                f[i, j] += t[i, 63 - j]
        if by == 0:
            T.copy(f, P)
""",
    # Registers were converted under no guard that had been computed under one.
    "guarded_casts": """
@T.prim_func
def main(A: T.Tensor((64, 64), "int8"), O: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=256) as by:
        s = T.alloc_shared((64, 64), "float16")
        t = T.alloc_shared((64, 64), "int8")
        T.copy(A, t)
        T.clear(s)
        for k in T.unroll(2):
            for i, j in T.Parallel(64, 64):
                if by > 0:
                    s[i, j] = T.cast(s[i, j], "float32") * T.cast(A[i, j], "float32") + T.cast(
                        t[i, (j + 3) % 64], "float32")
        T.copy(s, O)
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    assert run_text(f"import tilelang.language as T\n\n{FOUND[name]}") == ""
