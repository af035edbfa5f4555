# SPDX-License-Identifier: Apache-2.0
"""Random loop bodies: the lowered nest on all threads against the plain nest run iteration by iteration."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from run_threads import Threads, numpy_type
from test_lower_parallel import buffer, context, get_fragment, get_shared, machine, parallel, put_fragment, put_shared
from tvm import tirx

from tilelang.layout import SharedTile, row_major, spread
from tilelang.transform.lower.parallel import lower_parallel


class Body:
    """Statements over global A, B, C, I, shared S, fragments F, G (n, m), R (n); an iteration writes its own."""

    def __init__(self, rng: random.Random, shape: tuple[int, int], dtypes: list[str], ragged: bool) -> None:
        self.rng, self.shape = rng, shape
        n, m = shape
        outer = (n - 3, m) if ragged else (n + 2, m + 8)
        self.A, self.B = buffer("A", outer, dtypes[0]), buffer("B", outer, dtypes[1])
        self.C = buffer("C", outer, dtypes[0])  # only read: its rows are gathered
        self.index = buffer("I", (n,), "int32")
        self.S = buffer("S", shape, dtypes[2], "shared.dyn")
        self.F, self.G = (
            buffer("F", shape, dtypes[3], "local.fragment"),
            buffer("G", shape, "float32", "local.fragment"),
        )
        self.R = buffer("R", (n,), "float32", "local.fragment")
        self.tiles = [self.A, self.B, self.S, self.F, self.G]
        self.used: set[str] = set()

    def load(self, i: Any, j: Any) -> Any:
        kind = self.rng.randrange(8)
        if kind == 0:
            return self.R[i]
        if kind == 1:
            return tirx.Cast("float32", i * 3 + j)
        source = self.rng.choice([b for b in self.tiles if b.name not in self.written] or [self.R])
        if source.name == "R":
            return self.R[i]
        value = self.C[self.index[i], j] if kind == 2 else source[i, j]
        source = self.C if kind == 2 else source
        value = value if source.name == "G" or str(source.ty.dtype.dtype) == "float32" else tirx.Cast("float32", value)
        return tirx.if_then_else(i < self.shape[0] // 2, value, tirx.const(1.0, "float32")) if kind == 3 else value

    def value(self, i: Any, j: Any) -> Any:
        got = self.load(i, j)
        for _ in range(self.rng.randrange(3)):
            other = self.load(i, j)
            got = self.rng.choice([got + other, got * 0.5, tirx.max(got, other)])
        return got

    def __call__(self, i: Any, j: Any) -> Any:
        out: list[Any] = []
        self.written: set[str] = set()
        for k in range(self.rng.randint(1, 3)):
            dst = self.rng.choice([b for b in self.tiles if b.name not in self.written])
            value = self.value(i, j)
            if self.rng.random() < 0.3:
                bound = tirx.Var(f"x{k}", "float32")
                out.append(tirx.Bind(bound, value))
                value = bound + 1.0
            dtype = str(dst.ty.dtype.dtype)
            store = tirx.BufferStore(dst, value if dtype == "float32" else tirx.Cast(dtype, value), [i, j])
            guard = self.rng.randrange(5)
            if guard == 0:
                store = tirx.IfThenElse(i > 1, store, None)
            elif guard == 1:
                store = tirx.IfThenElse(i + j < self.shape[1], store, None)
            out.append(store)
            self.written.add(dst.name)
        return tirx.SeqStmt(out) if len(out) > 1 else out[0]


def expected(stmt: Any, arrays: dict[Any, np.ndarray]) -> dict[Any, np.ndarray]:
    """The plain nest, one iteration after the other; out-of-range reads give 0, writes are dropped."""
    wide = {b: np.zeros(tuple(n + 16 for n in x.shape), x.dtype) for b, x in arrays.items()}
    for b, x in arrays.items():
        wide[b][tuple(slice(0, n) for n in x.shape)] = x
    one = Threads(1, tirx.Var("t", "int32"), wide)
    one.run(stmt)
    return {b: wide[b][tuple(slice(0, n) for n in x.shape)] for b, x in arrays.items()}


@pytest.mark.parametrize("seed", range(24))
def test_random_bodies(seed: int) -> None:
    rng = random.Random(seed)
    shape, threads = rng.choice([(8, 16), (16, 32), (6, 24), (16, 8)]), rng.choice([32, 64, 96])
    vector = rng.choice([v for v in (1, 2, 4, 8) if shape[1] % v == 0])
    inner = rng.choice([t for t in range(1, threads + 1) if threads % t == 0 and (t - 1) * vector < shape[1]])
    loop = spread.coalesced(shape, threads, vector, inner)
    dtypes = [rng.choice(["float16", "float32", "bfloat16"]) for _ in range(4)]
    body = Body(rng, shape, dtypes, ragged=rng.random() < 0.4)
    stmt = parallel(loop, body)
    bits = 8 * numpy_type(dtypes[2]).itemsize
    tile = (
        SharedTile(*shape, bits, 16).layout
        if rng.random() < 0.6 and shape[1] * bits >= 128
        else row_major(shape, rng.choice([0, 1]))
    )
    rows = loop.drop(1)
    ctx = context(threads, {body.F: loop, body.G: loop, body.R: rows}, {body.S: tile})
    values = np.random.default_rng(seed)
    arrays = {
        b: values.integers(-8, 8, [int(x) for x in b.ty.shape]).astype(numpy_type(str(b.ty.dtype.dtype)))
        for b in (*body.tiles, body.C, body.R)
    }
    arrays[body.index] = values.integers(0, shape[0] - 3, shape[0]).astype(np.int32)
    want = expected(stmt, arrays)
    lowered = lower_parallel(stmt, ctx)
    mach = machine(ctx, {b: arrays[b].copy() for b in (body.A, body.B, body.C, body.index)})
    for b in (body.F, body.G, body.R):
        put_fragment(mach, ctx, b, arrays[b])
    put_shared(mach, ctx, body.S, arrays[body.S])
    mach.run(lowered)
    for b in (body.A, body.B):
        np.testing.assert_array_equal(mach.memory[b], want[b], err_msg=f"{b.name}\n{stmt}\n{lowered}")
    for b in (body.F, body.G):
        np.testing.assert_array_equal(get_fragment(mach, ctx, b), want[b], err_msg=f"{b.name}\n{stmt}\n{lowered}")
    np.testing.assert_array_equal(get_shared(mach, ctx, body.S), want[body.S], err_msg=f"{stmt}\n{lowered}")
