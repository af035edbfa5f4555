# SPDX-License-Identifier: Apache-2.0
"""Random tile programs compute the same on the cpu (tile semantics, no layouts) and on the simulated device."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_infer_random import emit_statement
from tile_programs import Builder, store

from tilelang.codegen.cpu import build_cpu
from tilelang.sim.api import simulate
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower


class Initialised:
    """A Builder whose fragments start with values, so that reads of them mean something."""

    def __init__(self, builder):
        self.builder = builder

    def __getattr__(self, name):
        return getattr(self.builder, name)

    def fragment(self, name, shape, dtype="float32"):
        buffer = self.builder.fragment(name, shape, dtype)
        self.builder.parallel(shape, lambda *i: store(buffer, (i[0] * 3 + sum(i[1:])).astype(dtype), *i))
        return buffer


@st.composite
def programs(draw):
    """(PrimFunc, parameters): as in test_infer_random, every buffer written first and stored at the end."""
    rows, cols, gemm = draw(st.integers(1, 20)), draw(st.integers(1, 24)), draw(st.booleans())
    tile, row, col = ((rows, cols), "float32"), ((rows,), "float32"), ((cols,), "float32")
    params = {"g": tile, "h": tile, "gr": row, "gc": col, "ga": ((64, 32), "float16"), "gb": ((32, 40), "float16")}
    params |= {"o0": tile, "o1": tile, "o2": tile, "or0": row, "or1": row, "oc0": col, "oc1": col}
    params |= {"oacc": ((64, 40), "float32"), "osum": ((64,), "float32"), "oa": ((64, 32), "float16")}
    with Builder(128 if gemm else 32 * draw(st.integers(1, 4)), (1,), params) as builder:
        p, out = Initialised(builder), dict(zip(params, builder.args))
        tiles = [p.fragment(f"x{k}", (rows, cols)) for k in range(3)]
        by_row = [p.fragment(f"r{k}", (rows,)) for k in range(2)]
        by_col = [p.fragment(f"c{k}", (cols,)) for k in range(2)]
        shared = p.shared("s", (rows, cols), "float32")
        p.copy(out["g"], tiles[0])
        for _ in range(draw(st.integers(1, 6))):
            emit_statement(draw, p, tiles, by_row, by_col, shared, rows, cols)
        if gemm:
            acc, a, s = p.fragment("acc", (64, 40)), p.fragment("a", (64, 32), "float16"), p.fragment("sum", (64,))
            b = p.shared("b", (32, 40))
            p.copy(out["ga"], a)
            p.copy(out["gb"], b)
            p.gemm(a, b, acc, clear=True, policy=draw(st.sampled_from(["square", "full_row"])))
            p.reduce(acc, s, "sum", dim=1)
            p.parallel((64, 32), lambda i, j: store(a, (acc[i, j] + s[i]).astype("float16"), i, j))
            p.copy(acc, out["oacc"])
            p.copy(s, out["osum"])
            p.copy(a, out["oa"])
        for name, buffer in zip(("o0", "o1", "o2", "or0", "or1", "oc0", "oc1"), (*tiles, *by_row, *by_col)):
            p.copy(buffer, out[name])
    return builder.func, params


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_random_programs_compute_what_they_say(arch):
    @settings(
        max_examples=4,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(programs())
    def run(case):
        func, params = case
        rng = np.random.default_rng(0)
        values = [rng.integers(-3, 4, shape).astype(dtype) for shape, dtype in params.values()]
        want = [tvm.runtime.tensor(v) for v in values]
        build_cpu(func)(*want)
        result = simulate(lower(func, ARCHS[arch]), values)
        assert not result.reports, str(result)
        for name, a, b in zip(params, want, values):
            np.testing.assert_allclose(b.astype("float64"), a.numpy().astype("float64"), 1e-4, 1e-4, err_msg=name)

    run()
