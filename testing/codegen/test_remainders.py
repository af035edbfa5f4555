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


def flattened(make: Any) -> tuple[Any, Any]:
    """Values of an index of the thread before and after."""
    with IRBuilder() as builder, T.prim_func(False, True):
        T.func_name("kernel")
        out = T.arg("O", T.buffer((THREADS,), "float32", layout=None))
        with T.launch_thread("threadIdx.x", THREADS) as thread:
            index = make(thread)
            T.buffer_store(out, tirx.const(0, "float32"), [index])
    module = tvm.IRModule.from_expr(protect_remainders(builder.get()))
    (func,) = tirx.transform.FlattenBuffer()(module).functions.values()
    found: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, lambda s: found.append(s.indices[0])))
    return values(index), values(found[0])


def values(index: Any) -> np.ndarray:
    names: set[Any] = set()
    tvm_ffi.structural_walk(index, (ir.Var, names.add))
    return np.broadcast_to(evaluate(index, {v: np.arange(THREADS) for v in names}), (THREADS,))


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
