# SPDX-License-Identifier: Apache-2.0
"""Device and Python control flow: what becomes a statement, what is decided while tracing."""

from __future__ import annotations

import re

import pytest
from user_programs import body

import tilelang.language as T


def test_python_conditions_choose_while_tracing():
    def make(flag):
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                if flag == "a" or flag is None:
                    A[0] = 1
                elif flag:
                    A[0] = 2
                else:
                    A[0] = 3

        return body(main)

    assert "A[0] = 1" in make("a") and "if" not in make("a")
    assert "A[0] = 2" in make("b")
    assert "A[0] = 3" in make("")


def test_device_conditions_become_branches():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(4, threads=32) as bx:
            if bx < n and not (n == 3):  # noqa: SIM201
                A[bx] = 1
            elif 1 < bx <= 2 or n != 4:
                A[bx] = 2
            else:
                A[bx] = 3

    text = body(main)
    assert "if bx < n and not n == 3:" in text
    assert "if 1 < bx and bx <= 2 or n != 4:" in text
    assert text.count("else:") == 2


def test_range_is_a_device_loop_and_lists_unroll():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            for i in range(4):
                A[i] = i
            for i in range(2, n):
                A[i] = i
            for i in [5, 6]:
                A[i] = i
            for i in range(7, -1, -2):
                A[i] = i

    text = body(main)
    assert "for i in range(4):" in text
    assert "for i_1 in range(2, 2 + (n - 2)):" in text or "for i_1 in range(2, n)" in text
    assert "A[5] = 5" in text and "A[6] = 6" in text
    assert re.search(r"for (\w+) in range\(4\):\n\s+(\w+): T.let\[T.int32\] = 7 \+ \1 \* -2", text)


def test_loop_kinds_and_annotations():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "int32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(8, 8, coalesced_width=2):
                A[i, j] = 1
            for i in T.unroll(8, unroll_factor=4):
                A[i, 0] = 1
            for v in T.vectorized(4):
                A[0, v] = 1
            for i, j in T.grid(2, 2):
                A[i, j] = 1
            for k in T.Pipelined(1, 4, num_stages=2, order=[0], stage=[0]):
                A[k, k] = 1

    text = body(main)
    assert '"tl.parallel": 2' in text and '"tl.coalesced_width": 2' in text
    assert "T.unroll(8" in text and '"tl.unroll": 4' in text
    assert "T.vectorized(4)" in text
    assert '"tl.num_stages": 2' in text and '"tl.pipeline_order": [0]' in text


def test_while_break_and_continue():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            i = T.alloc_var("int32", 0)
            while i < 8:
                i += 1
                if A[i] == 3:
                    continue
                if A[i] == 4:
                    break
                A[i] = i

    text = body(main)
    assert "while i[0] < 8:" in text
    assert "i[0] = i[0] + 1" in text
    assert "T.continue" in text or "continue" in text
    assert "break" in text


def test_break_of_an_unrolled_loop_is_pythons():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in [0, 1, 2, 3]:
                if i == 1:
                    continue
                if i == 3:
                    break
                A[i] = i

    text = body(main)
    assert "A[0]" in text and "A[2]" in text and "A[1]" not in text and "A[3]" not in text


def test_statements_after_break_are_dropped_with_a_warning():
    with pytest.warns(UserWarning, match="cannot run"):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                for i in T.serial(8):
                    break
                    A[i] = 1

    assert "A[i]" not in body(main)


def test_ternary_is_lazy():
    use_table = False

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), S: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=32) as b:
            base = S[b] if use_table else 0
            A[base + b] = A[b] if b < 3 else 1

    text = body(main)
    assert "A[b] = T.if_then_else(b < 3, A[b], T.float32(1.0))" in text


def test_short_circuit_keeps_pythons_values():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            name = None or "x"  # noqa: SIM222
            flag = True and (n > 2)
            off = False and n > 2  # noqa: SIM223
            if flag and not off:
                A[0] = len(name)

    assert "A[0] = 1" in body(main)


def test_and_or_give_one_of_their_operands():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32) as b:
            A[0] = A[b] or 5.0
            A[1] = A[b] and 5.0
            A[2] = A[b] or 0.0 or B[b]
            A[3] = n > 2 and A[b]
            n3 = n or b or 3
            B[n3] = 1.0 if A[b] and n else 2.0

    text = body(main)
    assert "A[0] = T.if_then_else(A[b] != T.float32(0.0), A[b], T.float32(5.0))" in text
    assert "A[1] = T.if_then_else(A[b] != T.float32(0.0), T.float32(5.0), A[b])" in text
    assert "A[2] = T.if_then_else(A[b] != T.float32(0.0), A[b], B[b])" in text
    assert 'A[3] = T.if_then_else(n > 2, A[b], T.Cast("float32", n > 2))' in text
    assert "T.if_then_else(n != 0, n, T.if_then_else(b != 0, b, 3))" in text
    assert "T.if_then_else(A[b] != T.float32(0.0) and n != 0, T.float32(1.0), T.float32(2.0))" in text  # a condition


def test_and_or_of_truth_values_are_logic():
    @T.prim_func
    def main(A: T.Tensor((8,), "bool"), n: T.int32):
        with T.Kernel(1, threads=32):
            A[0] = n > 2 or n == 0
            A[1] = n > 2 and True
            A[2] = not (n and A[0])

    text = body(main)
    assert "A[0] = n > 2 or n == 0" in text and "A[1] = n > 2" in text and "A[2] = not (n != 0 and A[0])" in text


def test_assert_of_device_values():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            assert 1 < 2
            assert n > 0, "n must be positive"
            A[0] = n

    assert "n must be positive" in body(main)


def test_bool_and_expression_mix():
    flag = True

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            if flag & (n == 3):
                A[0] = 1

    assert "if n == 3:" in body(main)


def test_closures_lambdas_and_comprehensions():
    scale = [2, 3]
    f = lambda x: x * scale[0]  # noqa: E731

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            g = lambda i: A[i] + 1  # noqa: E731
            parts = [A[i] for i in range(2)]
            A[0] = f(g(3)) + parts[0] + sum(scale)

    assert "A[0] = (A[3] + 1) * 2 + parts + 5" in body(main)
