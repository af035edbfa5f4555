# SPDX-License-Identifier: Apache-2.0
"""Random tile programs: what inference answers is sound, element by element, and independent of statement order."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tile_programs import Builder, store
from tvm import tirx

from tilelang.analysis.check_layouts import check_layouts
from tilelang.analysis.layouts import extract, solve
from tilelang.ir.stmts import launches
from tilelang.target.arch import ARCHS
from tilelang.transform.infer_layouts import infer_layouts, prepare
from tilelang.transform.plan_copies import plan_copies
from tilelang.transform.plan_gemms import plan_gemms

SM90 = ARCHS["sm_90a"]
ONE = tirx.const(1.0, "float32")


@st.composite
def programs(draw):
    """Elementwise, broadcast, reduction, transpose, gather and gemm chains over odd shapes and thread counts."""
    rows, cols = draw(st.integers(1, 24)), draw(st.integers(1, 40))
    threads = 32 * draw(st.integers(1, 5))
    with_gemm = draw(st.booleans())
    threads = 128 if with_gemm else threads
    g = ((rows, cols), "float32")
    with Builder(threads, (1,), {"g": g, "h": g, "gr": ((rows,), "float32"), "gc": ((cols,), "float32")}) as p:
        tiles = [p.fragment(f"x{k}", (rows, cols)) for k in range(3)]
        by_row = [p.fragment(f"r{k}", (rows,)) for k in range(2)]
        by_col = [p.fragment(f"c{k}", (cols,)) for k in range(2)]
        shared = p.shared("s", (rows, cols), "float32")
        p.copy(p.args[0], tiles[0])
        for _ in range(draw(st.integers(1, 5))):
            emit_statement(draw, p, tiles, by_row, by_col, shared, rows, cols)
        if with_gemm:
            acc, a, s = p.fragment("acc", (64, 40)), p.fragment("a", (64, 32), "float16"), p.fragment("sum", (64,))
            p.gemm(a, p.shared("b", (32, 40)), acc, policy=draw(st.sampled_from(["square", "full_row"])))
            p.reduce(acc, s, "sum", dim=1)
            p.parallel((64, 32), lambda i, j: store(a, (acc[i, j] * s[i]).astype("float16"), i, j))
    return p.func


def emit_statement(draw, p, tiles, by_row, by_col, shared, rows, cols):
    a, b = draw(st.sampled_from(tiles)), draw(st.sampled_from(tiles))
    r, c = draw(st.sampled_from(by_row)), draw(st.sampled_from(by_col))
    both = (rows, cols)
    match draw(st.integers(0, 11)):
        case 0:
            p.reduce(a, r, "sum", dim=1, clear=draw(st.booleans()))
        case 1:
            p.reduce(a, c, "max", dim=0, clear=draw(st.booleans()))
        case 2:
            p.parallel(both, lambda i, j: store(b, a[i, j] * r[i] + c[j], i, j))
        case 3:
            p.parallel(both, lambda i, j: store(b, a[i, j], i, j))
        case 4:
            p.copy(p.args[2], r)
        case 5:
            half = p.fragment(f"half{p.line}", (rows, -(-cols // 2)), "uint8")
            p.parallel(both, lambda i, j: store(b, half[i, j // 2].astype("float32"), i, j))
        case 6:
            turned = p.fragment(f"turned{p.line}", (cols, rows))
            p.parallel(both, lambda i, j: store(turned, a[i, j], j, i))
        case 7:
            p.parallel(both, lambda i, j: store(shared, a[i, j], i, j))
            p.parallel(both, lambda i, j: store(b, shared[i, cols - 1 - j], i, j))
        case 8:
            p.parallel((rows,), lambda i: [store(p.args[2], r[i], i), store(r, ONE, i)])
        case 9:
            p.parallel(both, lambda i, j: tirx.IfThenElse(tirx.EQ(j, cols // 2), store(r, a[i, j], i), None))
        case 10:
            p.emit(store(r, a[0, cols - 1], rows - 1))
        case 11:
            p.parallel(both, lambda i, j: store(p.args[1], a[i, j] + b[i, (i + j) % cols], i, j))


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 99))
def test_random_programs_are_sound_and_order_independent(func, seed):
    func = plan_copies(plan_gemms(func, SM90), SM90)
    assert check_layouts(infer_layouts(func, SM90)) == []
    program = extract(launches(prepare(func))[0])
    first = str(solve(program))
    random.Random(seed).shuffle(program.ops)
    assert str(solve(program)) == first
