# SPDX-License-Identifier: Apache-2.0
"""Plain Python helpers called by kernels: compile-time Python that never decides silently on a device value."""

from __future__ import annotations

import functools

import pytest
from user_programs import body

import tilelang.language as T
from tilelang.tir_builder import errors


def first_or(i, a, b=7, *, scale=1):
    return (a if i == 0 else b) * scale


def power(x, n):
    result = 1
    for _ in range(n):
        result = result * x
    while n > 3:
        n -= 1
    return result


def edge(i, n):
    return i == 0 or not (0 < i < n) or i in (5, 6)


def doubled(f):
    @functools.wraps(f)
    def call(*args):
        return f(*args) * 2

    return call


@doubled
def decorated(i):
    return 1 if i == 0 else 3


def recursive(x, n):
    return x if n == 0 else recursive(x + n, n - 1)


def enclosing(n):
    def inner(i):
        return n if i == n else 0

    return inner


class Callable:
    def __call__(self, i):
        return 5 if i == 1 else 6


LAMBDAS = [lambda i: 1 if i == 0 else 2, lambda i: 3 if i == 0 else 4]


def wrong(i):
    if i == 3:
        return 1
    return 2


class Helper:
    def __init__(self, offset):
        self.offset = offset

    def shift(self, i):
        return i + self.offset if i != self.offset else 0

    def put(self, A, i):
        A[-1] = A[i]
        A[i] += 1


def test_helpers_mean_on_the_device_what_they_mean_in_python():
    h = Helper(3)

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(4, threads=32) as b:
            A[0] = first_or(b, 1, scale=2) + first_or(0, n)
            A[1] = power(n, 3)
            if edge(b, n):
                A[2] = h.shift(b)
            h.put(A, b)

    text = body(main)
    assert "A[0] = T.if_then_else(b == 0, 1, 7) * 2 + n" in text
    assert "A[1] = n * n * n" in text
    assert "if b == 0 or not (0 < b and b < n) or (b == 5 or b == 6):" in text.replace("not 0 < b", "not (0 < b")
    assert "T.if_then_else(b != 3, b + 3, 0)" in text
    assert "A[7] = A[b]" in text and "A[b] = A[b] + 1" in text


def test_every_kind_of_helper_is_covered():
    inner = enclosing(4)
    part = functools.partial(first_or, a=8)
    call = Callable()

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(4, threads=32) as b:
            A[0] = decorated(b)
            A[1] = recursive(n, 2)
            A[2] = inner(b)
            A[3] = LAMBDAS[1](b)
            A[4] = part(b)
            A[5] = call(b)

    text = body(main)
    assert "A[0] = T.if_then_else(b == 0, 1, 3) * 2" in text
    assert "A[1] = n + 2 + 1" in text
    assert "A[2] = T.if_then_else(b == 4, 4, 0)" in text
    assert "A[3] = T.if_then_else(b == 0, 3, 4)" in text
    assert "A[4] = T.if_then_else(b == 0, 8, 7)" in text
    assert "A[5] = T.if_then_else(b == 1, 5, 6)" in text


def test_decisions_on_device_values_are_refused_in_the_helper():
    with pytest.raises(errors.NoTruthValue) as info:

        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), n: T.int32):
            with T.Kernel(4, threads=32):
                A[0] = wrong(n)

    text = str(info.value)
    assert "if i == 3:" in text and "in wrong, called from here" in text
    assert wrong(3) == 1 and wrong(4) == 2  # Python's own helper is untouched
