# SPDX-License-Identifier: Apache-2.0
"""Device and Python control flow: what becomes a statement, what is decided while tracing."""

from __future__ import annotations

import re

import numpy as np
import pytest
from user_programs import body

import tilelang.language as T
from tilelang.codegen.cpu import build_cpu
from tilelang.tir_builder import errors


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


def test_a_while_of_python_values_runs_while_tracing():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            s = 4
            while s > 0:
                A[s] = s
                s //= 2
            for i in range(n):
                step, left = 1, [7, 2, 2]
                while left and step < 9:
                    step += left.pop()
                    if step == 3:
                        continue
                    if i == 2:
                        A[i] = step
                    if step > 4:
                        break
                A[step] = s
            A[7] = s + 1

    text = body(main)
    assert "while" not in text and "step" not in text
    assert re.findall(r"A\[(\d)\] = (\d)", text) == [("4", "4"), ("2", "2"), ("1", "1"), ("5", "0"), ("7", "1")]
    assert text.count("A[i] = 5") == 1


def test_break_after_an_inner_python_loop_is_of_the_outer_one():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            n = 0
            while n < 5:
                for i in T.serial(4):
                    for k in (5, 6):
                        A[k] = i
                if n == 1:
                    break
                n += 1
            A[0] = n

    text = body(main)
    assert text.count("A[5] = ") == 2 and "A[0] = 1" in text


def test_a_while_may_not_turn_from_python_to_the_device():
    with pytest.raises(errors.BadOperation, match="was a Python value first"):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                x = 1
                while x > 0:
                    x = A[0]


def test_a_while_of_python_values_ends():
    with pytest.raises(errors.EndlessLoop, match="still true after 10000 iterations"):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                x = 1
                while x > 0:
                    A[0] = x


def test_a_while_of_python_values_in_a_device_loop_may_not_carry_them():
    with pytest.raises(errors.LoopCarriedName):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), n: T.int32):
            with T.Kernel(1, threads=32):
                s = 4
                for i in T.serial(n):
                    while s > 0:
                        A[i] = s
                        s //= 2


def test_a_device_break_in_a_while_of_python_values_is_refused():
    with pytest.raises(errors.LoopControl, match="unrolled by Python"):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                s = 4
                while s > 0:
                    if A[s] == 0:
                        break
                    s //= 2


def test_a_reversed_range_is_a_descending_loop():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            count = T.alloc_var("int32", 0)
            for i in reversed(range(n)):
                A[count] = i
                count += 1
            for i in reversed(range(2, n, 3)):
                A[count] = i
                count += 1
            for i in reversed(range(n, -1, -2)):
                A[count] = i
                count += 1
            for i in reversed(T.serial(3)):
                A[count] = i
                count += 1
            A[63] = count

    for n in (0, 1, 6, 7):
        a = np.zeros(64, "int32")
        build_cpu(main)(a, n)
        want = [*reversed(range(n)), *reversed(range(2, n, 3)), *reversed(range(n, -1, -2)), 2, 1, 0]
        assert a[: len(want)].tolist() == want and a[63] == len(want)


@pytest.mark.parametrize("loop", [lambda n: T.Parallel(n), lambda n: T.grid(n, 2), lambda n: T.range(0, 8, n)])
def test_loops_without_an_order_are_not_reversed(loop):
    with pytest.raises(errors.BadOperation, match="can be reversed"):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), n: T.int32):
            with T.Kernel(1, threads=32):
                for i in reversed(loop(n)):
                    A[0] = i


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
