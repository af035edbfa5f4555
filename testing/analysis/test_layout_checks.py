# SPDX-License-Identifier: Apache-2.0
"""The brute-force checker finds planted faults; explanations; index maps; branches."""

from __future__ import annotations

import pytest
from tile_programs import Builder, flash_attention_program, gemm_program, store
from tvm import tirx

from tilelang.analysis.check_layouts import check_layouts
from tilelang.analysis.explain_layouts import explain_layouts
from tilelang.analysis.index_values import Opaque, evaluate
from tilelang.analysis.layouts.access import Scope, fragment_map, memory_map
from tilelang.analysis.thread_groups import ThreadGroups
from tilelang.ir.attrs import LAYOUT
from tilelang.ir.stmts import launches, rebuild
from tilelang.layout import loads
from tilelang.layout.spread import coalesced, replicated
from tilelang.target.arch import ARCHS
from tilelang.transform.infer_layouts import infer_layouts, prepare
from tilelang.transform.plan_copies import plan_copies
from tilelang.transform.plan_gemms import plan_gemms

SM90 = ARCHS["sm_90a"]


def planned(func):
    return plan_copies(plan_gemms(func, SM90), SM90)


def with_layout(func, name, layout):
    """The function with the layout text of a buffer, or of the nest that stores to it, replaced (None: taken away)."""

    def change(stmt):
        if isinstance(stmt, tirx.AllocBuffer) and stmt.buffer.name == name:
            return tirx.AllocBuffer(stmt.buffer, {LAYOUT: layout} if layout else {}, stmt.span)
        return stmt

    return func.with_body(rebuild([func.body], change)[0])


@pytest.fixture(scope="module")
def sound():
    return infer_layouts(planned(gemm_program(64, 64, 64, 128)), SM90)


def test_sound_programs_pass(sound):
    assert check_layouts(sound) == []


@pytest.mark.parametrize(
    "name,layout,text",
    [
        ("acc", None, "acc has no layout"),
        ("acc", coalesced((64, 32), 128, 1, 32).dumps(), "its layout (64, 32)"),
        ("acc", "shared(64,64)[64:a64, 64:a1]", "is in fragment memory"),
        ("acc", "fragment(64,64)[64:t1, 64:t1]", "share a place"),
        ("acc", coalesced((64, 64), 256, 4, 16).dumps(), "threads that do not exist"),
        ("acc", coalesced((64, 64), 128, 4, 16).dumps(), "does not hold"),
        ("As", "shared(64,64)[64:a64, 64:a1]", "the op takes"),
        ("acc_cast", replicated((64, 64), 128).dumps(), "does not run"),
    ],
)
def test_faults_are_found(sound, name, layout, text):
    found = check_layouts(with_layout(sound, name, layout))
    assert any(text in line for line in found), found


def test_registers_that_depend_on_the_thread_are_found():
    with Builder(32) as p:
        x, y = p.fragment("x", (32,)), p.fragment("y", (32,))
        p.parallel((32,), lambda i: store(y, x[i], i))
    func = infer_layouts(p.func, SM90)
    assert check_layouts(func) == []
    func = with_layout(with_layout(func, "x", replicated((32,), 32).dumps()), "y", "fragment(32)[32:t1]")
    assert check_layouts(func) == ["line 3 reads x: the register depends on the thread"]


def test_explanations_lead_to_the_instruction():
    (kernel,) = launches(prepare(planned(flash_attention_program(64, 64, 64, 128))))
    reasons = {r.name: r for r in explain_layouts(kernel)}
    chain = [str(r) for r in reasons["alpha"].chain]
    assert len(chain) >= 3 and any("wgmma" in c and "[line" in c for c in chain)
    assert reasons["acc"].kind == "fragment" and reasons["acc"].registers == 32
    assert reasons["alpha"].replication == 4 and reasons["Ks"].kind == "shared"
    assert "because acc: wgmma m64n64 accumulator" in str(reasons["acc"])
    assert sum(r.kind == "loop" for r in reasons.values()) == sum(n.startswith("loop(") for n in reasons)


# -- index maps

I, J, K, U = (tirx.Var(n, "int32") for n in "ijku")


@pytest.mark.parametrize(
    "indices,shape,text,inner",
    [
        ((I, J), (4, 8), "map<d0,d1>(4,8)[4:d0.1, 8:d1.1]", ()),
        ((J, I), (8, 4), "map<d0,d1>(4,8)[4:d1.1, 8:d0.1]", ()),
        ((I,), (4,), "map<d0>(4,8)[4:d0.1, 8:_]", ()),
        ((I * 8 + J,), (32,), "map<d0>(4,8)[4:d0.8, 8:d0.1]", ()),
        ((I, J // 2), (4, 4), "map<d0,d1>(4,8)[4:d0.1, 2:_ 4:d1.1]", ()),
        ((I, J % 2), (4, 2), "map<d0,d1>(4,8)[4:d0.1, 2:d1.1 4:_]", ()),
        ((I, J + 3), (4, 11), "map<d0,d1>(4,8)[4:d0.1, 8:d1.1] +d1.3", ()),
        ((I, K * 8 + J), (4, 24), "map<d0,d1>(4,8,3)[4:d0.1, 8:d1.1, 3:d1.8]", (3,)),
        ((I, U), (4, 5), "map<d0,d1>(4,8,5)[4:d0.1, 8:_, 5:d1.1]", (5,)),
    ],
)
def test_fragment_maps(indices, shape, text, inner):
    got, extra = fragment_map(indices, shape, [(I, 4), (J, 8)], Scope({K: (0, 3)}))
    assert got is not None and extra == inner
    want = loads(text)
    assert got.shape == want.shape
    assert all((got.arrays[a] == want.arrays[a]).all() for a in want.axes)


@pytest.mark.parametrize("indices", [(I, I), (I, J - 1), (I, J + U), (I, (I + J) % 8)])
def test_indices_without_a_map(indices):
    assert fragment_map(indices, (8, 8), [(I, 4), (J, 8)], Scope())[0] is None


def test_bound_names_are_followed_and_memory_offsets_ignored():
    bound = tirx.Var("b", "int32")
    scope = Scope({}, {bound: J // 2})
    got, _ = fragment_map((I, bound), (4, 4), [(I, 4), (J, 8)], scope)
    assert got is not None and got.dumps() == "map<d0,d1>(4,8)[4:d0.1, 2:_ 4:d1.1]"
    got = memory_map((U * 64 + I, J + 5), [(I, 4), (J, 8)], scope)
    assert got is not None and got.dumps() == "map<d0,d1>(4,8)[4:d0.1, 8:d1.1]"


# -- values and branches


def test_values_of_expressions():
    assert evaluate((I * 3 + 1) // 2 - (I ^ 1), {I: 5}) == 4
    assert evaluate(tirx.Select(I < 3, I, J), {I: 5, J: 9}) == 9
    with pytest.raises(Opaque):
        evaluate(I + J, {I: 1})


def test_branches_on_the_thread_index():
    with Builder(256) as p:
        p.emit(tirx.Evaluate(0))
    (kernel,) = launches(p.func)
    tx = kernel.axis("threadIdx.x")
    groups = ThreadGroups(kernel)

    def ranges(condition):
        return [g and g.range for g in groups.arms(condition, groups.whole)]

    assert ranges(tx < 128) == [(0, 128), (128, 256)]
    assert ranges(tirx.EQ(tx // 64, 1)) == [(64, 128), None]  # the others are no neighbours
    assert ranges(tirx.EQ(kernel.axis("blockIdx.x"), 0)) == [(0, 256), (0, 256)]
