# SPDX-License-Identifier: Apache-2.0
"""Whole kernels on the cpu target: softmax, layer norm, flash attention, with symbolic and ragged sizes."""

from __future__ import annotations

import numpy as np
import programs as P
import pytest
import torch
from tvm import tirx

from tilelang.codegen.cpu import build_cpu


def test_softmax_of_ragged_rows():
    width = 48

    def body():
        m, n = P.dim("M"), P.dim("N")
        x, y = P.tensor("X", (m, n), "float16"), P.tensor("Y", (m, n), "float16")
        with P.kernel(P.ceildiv(m, 8)) as (bx, _):
            t, peak, total = P.fragment("t", (8, width)), P.fragment("peak", (8,)), P.fragment("total", (8,))
            P.copy(P.region(x, (bx * 8, 8), (0, width)), t)
            with P.parallel(8, width) as (i, j):
                P.store(t, tirx.if_then_else(j < n, t[i, j], tirx.const(float("-inf"), "float32")), i, j)
            P.reduce(t, peak, "max", dim=1)
            with P.parallel(8, width) as (i, j):
                P.store(t, tirx.exp(t[i, j] - peak[i]), i, j)
            P.reduce(t, total, "sum", dim=1)
            with P.parallel(8, width) as (i, j):
                P.store(t, t[i, j] / total[i], i, j)
            P.copy(t, P.region(y, (bx * 8, 8), (0, width)))

    run = build_cpu(P.build(body), poison=True)
    for m, n in ((8, 48), (5, 17), (19, 48), (1, 1)):
        x, y = torch.randn(m, n).half(), torch.empty(m, n).half()
        run(x, y)
        torch.testing.assert_close(y.float(), x.float().softmax(1), rtol=1e-3, atol=1e-3)


def test_layer_norm_keeps_a_running_value_in_a_variable():
    def body():
        m = P.dim("M")
        x, w, y = P.tensor("X", (m, 40), "float32"), P.tensor("W", (40,), "float32"), P.tensor("Y", (m, 40), "float32")
        with P.kernel(m) as (b, _):
            t, s = P.fragment("t", (40,)), P.fragment("s", (1,))
            mean = P.alloc("mean", (1,), "float32", "local.var")
            P.copy(P.region(x, b, (0, 40)), t)
            P.reduce(t, s, "sum", dim=0)
            P.store(mean, s[0] / tirx.const(40.0, "float32"), 0)
            with P.parallel(40) as i:
                P.store(t, t[i] - mean[0], i)
            square = P.fragment("square", (40,))
            with P.parallel(40) as i:
                P.store(square, t[i] * t[i], i)
            P.reduce(square, s, "sum", dim=0)
            scale = P.B.bind(tirx.rsqrt(s[0] / tirx.const(40.0, "float32") + tirx.const(1e-5, "float32")))
            with P.parallel(40) as i:
                P.store(y, t[i] * scale * w[i], b, i)

    x, w = torch.randn(7, 40), torch.randn(40)
    y = torch.empty_like(x)
    build_cpu(P.build(body), poison=True)(x, w, y)
    torch.testing.assert_close(y, torch.nn.functional.layer_norm(x, (40,), w, eps=1e-5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_any_length(causal):
    seq = P.dim("S")
    run = build_cpu(P.attention_program(2, seq, 32, causal, 32, 16), poison=True)
    for batch, length in ((1, 64), (2, 49), (1, 1), (0, 16), (1, 0)):
        q, k, v = (torch.randn(batch, 2, length, 32).half() for _ in range(3))
        out = torch.full_like(q, float("nan"))
        run(q, k, v, out)
        want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
        torch.testing.assert_close(out.float(), want, rtol=2e-3, atol=2e-3)


def test_two_launches_in_one_program_share_a_global_buffer():
    def body():
        n = P.dim("N")
        a, t, b = (P.tensor(x, (n,), "float32") for x in "ATB")
        with P.kernel(P.ceildiv(n, 16)) as (bx, _), P.parallel(16) as i:
            P.store(t, a[bx * 16 + i] * tirx.const(2.0, "float32"), bx * 16 + i)
        with P.kernel(P.ceildiv(n, 8)) as (bx, _), P.parallel(8) as i:
            P.store(b, t[n - 1 - (bx * 8 + i)], bx * 8 + i)

    a = np.arange(21, dtype="float32")
    t, b = np.zeros_like(a), np.zeros_like(a)
    build_cpu(P.build(body))(a, t, b)
    np.testing.assert_array_equal(b, (2 * a)[::-1])


def test_wrong_arguments_are_refused_by_name():
    run = build_cpu(P.gemm_program("float16", "float32", (16, 16, 16)))
    a, b, c = torch.zeros(4, 8).half(), torch.zeros(8, 4).half(), torch.zeros(4, 4)
    with pytest.raises((TypeError, ValueError), match="B"):
        run(a, torch.zeros(9, 4).half(), c)
    with pytest.raises((TypeError, ValueError), match="A"):
        run(a.float(), b, c)
