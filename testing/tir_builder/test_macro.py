# SPDX-License-Identifier: Apache-2.0
"""Macros: arguments, references, results, nesting."""

from __future__ import annotations

import pytest
from user_programs import body

import tilelang.language as T
from tilelang.tir_builder import errors


def test_arguments_are_bound_once_and_results_returned():
    @T.macro
    def square(x):
        return x * x

    @T.macro
    def both(x, y=2):
        a = square(x)
        return a, a + y

    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as b:
            p, q = both(A[b] + 1)
            A[0] = p + q

    text = body(main)
    assert "x: T.let[T.float32] = A[b] + T.float32(1.0)" in text
    assert "a: T.let[T.float32] = x * x" in text
    assert "A[0] = a + q" in text


def test_references_are_stored_to():
    @T.macro
    def add(total: T.Ref, x):
        total = total + x
        total += 1

    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as b:
            s = T.alloc_var("float32", 0)
            add(s, A[b])
            add(A[3], s)

    text = body(main)
    assert "s[0] = s[0] + x" in text and "s[0] = s[0] + T.float32(1.0)" in text
    assert "A[3] = A[3] + x_1" in text
    with pytest.raises(errors.ReferenceExpected):

        @T.prim_func
        def bad(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                add(3, A[0])


def test_a_returned_variable_stays_one():
    @T.macro
    def counter(start):
        v = T.alloc_var("int32", start)
        return v

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            c = counter(3)
            c += 1
            A[0] = c

    text = body(main)
    assert "v[0] = v[0] + 1" in text and "A[0] = v[0]" in text


def test_fragments_and_kernels_in_macros():
    @T.macro
    def tile(A, n):
        with T.Kernel(n, threads=32) as b:
            f = T.alloc_fragment((8,), "float32")
            T.copy(A[b, :], f)
            T.copy(f, A[b, :])

    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        tile(A, 4)
        tile(B, 4)

    text = main.script(show_meta=False)
    assert text.count('T.launch_thread("blockIdx.x"') == 2 or text.count("blockIdx.x") == 2


def test_methods_and_macro_arguments():
    class Helper:
        def __init__(self, k):
            self.k = k

        @T.macro
        def apply(self, f, x):
            return f(x) * self.k

    @T.macro
    def inc(x):
        return x + 1

    h = Helper(3)

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as b:
            A[0] = h.apply(inc, A[b])

    assert "A[0] = (x + 1) * 3" in body(main)


def test_return_inside_device_control_flow_is_refused():
    @T.macro
    def bad(x):
        if x > 0:
            return x
        return 0

    with pytest.raises(errors.ReturnInBranch) as info:

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                A[0] = bad(A[1])

    assert "in bad, called from here" in str(info.value)


def test_a_macro_inside_and_is_refused():
    @T.macro
    def effect(A):
        A[0] = 1
        return A[0] > 0

    with pytest.raises(errors.MacroInExpression):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), n: T.int32):
            with T.Kernel(1, threads=32):
                if n > 0 and effect(A):
                    A[1] = 1


def test_a_macro_outside_a_trace_is_refused():
    @T.macro
    def m():
        pass

    with pytest.raises(errors.JITNoBuilderError):
        m()
