# SPDX-License-Identifier: Apache-2.0
"""Indices keep their values through TVM's FlattenBuffer."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.analysis.index_values import evaluate
from tilelang.codegen.remainders import protect_remainders

THREADS = 64


def flattened(make: Any, threads: int = THREADS) -> tuple[Any, Any]:
    """Values of an index of the thread before and after."""
    with IRBuilder() as builder, T.prim_func(False, True):
        T.func_name("kernel")
        out = T.arg("O", T.buffer((THREADS,), "float32", layout=None))
        with T.launch_thread("threadIdx.x", threads) as thread:
            index = make(thread)
            T.buffer_store(out, tirx.const(0, "float32"), [index])
    module = tvm.IRModule.from_expr(protect_remainders(builder.get()))
    (func,) = tirx.transform.FlattenBuffer()(module).functions.values()
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, lambda s: found.append(s.indices[0])))
    return values(index, threads), values(found[0], threads)


def values(index: Any, threads: int) -> np.ndarray:
    names: set[Any] = set()
    tvm_ffi.structural_walk(index, (ir.Var, names.add))
    return np.broadcast_to(evaluate(index, {v: np.arange(threads) for v in names}), (threads,))


def test_quotients_and_remainders_of_falling_and_rising_indices():
    choose = random.Random(1).choice
    for _ in range(150):
        c, start, step = choose([2, 3, 4, 6, 8, 12, 16]), choose([-1, 0, 1, 7, 8, 60, 63]), choose([1, -1, 2, -2])
        scale, form = choose([1, c, 4]), choose([0, 1, 2])

        def make(v, c=c, start=start, step=step, scale=scale, form=form):
            x = start + v * step
            if form == 0:
                return x // c * scale + x % c
            if form == 1:
                return x // c * scale + x % c // 2 * 2 + x % 2
            return x // c % 4 * scale + x % c

        before, after = flattened(make)
        np.testing.assert_array_equal(after, before, err_msg=f"{start} + v * {step}, {c}, {scale}, {form}")


def test_subtracted_remainders():
    """Also of a thread that is known to be below the divisor, where the difference is 0."""
    choose = random.Random(2).choice
    for _ in range(150):
        c, d, start = choose([2, 3, 8, 24, 32]), choose([2, 4, 6, 32]), choose([0, 1, 7, 40])
        threads, scale, form = choose([8, 24, 32, 64]), choose([1, 2, c]), choose([0, 1, 2, 3])

        def make(v, c=c, d=d, start=start, scale=scale, form=form):
            if form == 0:
                return v + start - v % c
            if form == 1:
                return v * scale + start - v % c * scale
            if form == 2:
                return (v - v % c) // d + v % c
            return v + v % c * -scale - (v + start) % d

        before, after = flattened(make, threads)
        np.testing.assert_array_equal(after, before, err_msg=f"{c}, {d}, {start}, {threads}, {scale}, {form}")
