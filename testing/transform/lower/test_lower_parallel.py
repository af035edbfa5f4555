# SPDX-License-Identifier: Apache-2.0
"""Laid out T.Parallel nests run thread by thread against numpy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from run_threads import Threads, barrier, numpy_type
from tvm import tirx

from tilelang.ir import attrs
from tilelang.layout import SharedTile, Table, recover, row_major, spread
from tilelang.layout import operands as hw
from tilelang.target.arch import ARCHS
from tilelang.transform.lower.context import LowerContext, LoweringError, UnsupportedTileOp
from tilelang.transform.lower.parallel import lower_parallel
from tilelang.transform.lower.scalar import lower_scalar


def buffer(name: str, shape: tuple[Any, ...], dtype: str = "float32", scope: str = "global") -> Any:
    return tirx.decl_buffer(shape, dtype, name, scope=scope, layout=None)


def context(threads: int, fragments: dict[Any, Any], shared: dict[Any, Any]) -> LowerContext:
    """Flat buffers for laid out logical ones."""
    registers = {
        b: buffer(f"{b.name}_r", (lay.span("reg"),), b.ty.dtype.dtype, "local") for b, lay in fragments.items()
    }
    flat = {}
    for b, lay in shared.items():
        versions = int(b.ty.shape[0]) if len(b.ty.shape) > len(lay.shape) else 1
        size = -(-lay.span("addr") // 1024) * 1024
        flat[b] = buffer(f"{b.name}_s", (versions * size,), b.ty.dtype.dtype, "shared.dyn")
    thread = tirx.Var("tx", "int32")
    ctx = LowerContext(ARCHS["sm_90a"], thread, threads, {**fragments, **shared}, registers, flat, barrier)
    ctx.within(thread, tirx.const(threads, "int32"))
    return ctx


def machine(ctx: LowerContext, memory: dict[Any, np.ndarray], **scalars: Any) -> Threads:
    m = Threads(ctx.threads, ctx.thread, dict(memory), scalars.get("scalars"))
    for logical, flat in ctx.shared.items():
        m.memory[flat] = np.zeros(int(flat.ty.shape[0]), numpy_type(str(logical.ty.dtype.dtype)))
    for flat in ctx.registers.values():
        m._AllocBuffer(tirx.AllocBuffer(flat))
    for s in ctx.allocs:
        m._AllocBuffer(s)
    return m


def put_fragment(m: Threads, ctx: LowerContext, b: Any, value: np.ndarray) -> None:
    places, regs = ctx.layouts[b].arrays, m.locals[ctx.registers[b]]
    regs[places["reg"], places["thread"]] = np.broadcast_to(value[..., None], places["reg"].shape)


def get_fragment(m: Threads, ctx: LowerContext, b: Any) -> np.ndarray:
    places, regs = ctx.layouts[b].arrays, m.locals[ctx.registers[b]]
    got = regs[places["reg"], places["thread"]]
    assert np.array_equal(got, np.broadcast_to(got[..., :1], got.shape), equal_nan=got.dtype.kind in "fV")
    return got[..., 0]


def put_shared(m: Threads, ctx: LowerContext, b: Any, value: np.ndarray) -> None:
    m.memory[ctx.shared[b]][ctx.layouts[b].arrays["addr"][..., 0]] = value


def get_shared(m: Threads, ctx: LowerContext, b: Any) -> np.ndarray:
    return m.memory[ctx.shared[b]][ctx.layouts[b].arrays["addr"][..., 0]]


def parallel(layout: Any, body: Any, **notes: Any) -> Any:
    """The nest over `layout.shape`; `body(*vars)` gives a statement."""
    loop_vars = [tirx.Var(n, "int32") for n in "ijkl"[: len(layout.shape)]]
    stmt = body(*loop_vars)
    for k, (v, n) in reversed(list(enumerate(zip(loop_vars, layout.shape, strict=True)))):
        note = {attrs.PARALLEL: len(loop_vars), attrs.LAYOUT: layout.dumps(), **notes} if k == 0 else {}
        stmt = tirx.For(v, 0, n, tirx.ForKind.PARALLEL, stmt, annotations=note)
    return stmt


def random_copy_layout(rng: random.Random, shape: tuple[int, ...], threads: int) -> Any:
    vector = rng.choice([v for v in (1, 2, 4, 8) if shape[-1] % v == 0])
    inner = rng.choice([t for t in range(1, threads + 1) if threads % t == 0 and (t - 1) * vector < shape[-1]])
    return (
        spread.coalesced(shape, threads, vector, inner)
        if rng.random() < 0.7
        else spread.flat(shape, threads, rng.choice([1, 2]))
    )


@pytest.mark.parametrize("seed", range(16))
def test_copies_between_all_places(seed: int) -> None:
    rng = random.Random(seed)
    threads, (n, m) = rng.choice([32, 48, 96, 128, 256]), rng.choice([(16, 32), (32, 33), (8, 128), (7, 24), (64, 64)])
    loop = random_copy_layout(rng, (n, m), threads)
    dtypes = [rng.choice(["float16", "float32", "bfloat16", "int8"]) for _ in range(2)]
    A, B = buffer("A", (n, m), dtypes[0]), buffer("B", (n, m), dtypes[1])
    S, F = buffer("S", (n, m), dtypes[0], "shared.dyn"), buffer("F", (n, m), dtypes[0], "local.fragment")
    tile = (
        SharedTile(n, m, 8 * numpy_type(dtypes[0]).itemsize, 16).layout
        if m % 16 == 0
        else row_major((n, m), rng.choice([0, 1, 8]))
    )
    ctx = context(threads, {F: loop}, {S: tile})
    a = np.arange(n * m).reshape(n, m).astype(np.int64) % 100
    mach = machine(ctx, {A: a.astype(numpy_type(dtypes[0])), B: np.zeros((n, m), numpy_type(dtypes[1]))})
    for src, dst in ((A, F), (F, S), (S, B)):
        cast = (lambda x: x) if src is not S or dtypes[0] == dtypes[1] else (lambda x: tirx.Cast(dtypes[1], x))
        loop_stmt = parallel(
            loop, lambda i, j, src=src, dst=dst, cast=cast: tirx.BufferStore(dst, cast(src[i, j]), [i, j])
        )
        mach.run(lower_parallel(loop_stmt, ctx))
        mach.epoch += 1
    np.testing.assert_array_equal(mach.memory[B].astype(np.int64), a)


def test_wide_copy_is_one_vector_per_thread() -> None:
    loop = spread.coalesced((32, 64), 256, 8, 8)
    A, S = buffer("A", (64, 256), "float16"), buffer("S", (2, 32, 64), "float16", "shared.dyn")
    ctx = context(256, {}, {S: SharedTile(32, 64, 16, 128).layout})
    k = tirx.Var("k", "int32")
    ctx.within(k, tirx.const(4, "int32"))
    stmt = lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(S, A[32 + i, k * 64 + j], [k % 2, i, j])), ctx)
    assert str(stmt).count("vectorized(8)") == 1 and "if" not in str(stmt)
    a = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float16)
    mach = machine(ctx, {A: a}, scalars={k: 3})
    mach.run(stmt)
    got = mach.memory[ctx.shared[S]][2048:][ctx.layouts[S].arrays["addr"][..., 0]]
    np.testing.assert_array_equal(got, a[32:, 192:])


def test_bounds_read_zero_and_skip_stores() -> None:
    loop = spread.coalesced((32, 64), 128, 8, 8)
    N, A, B = tirx.Var("N", "int32"), None, None
    A, B = buffer("A", (N, 64), "float16"), buffer("B", (N, 60), "float16")
    F = buffer("F", (32, 64), "float16", "local.fragment")
    ctx = context(128, {F: loop}, {})
    b = tirx.Var("b", "int32")
    first = lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(F, A[b * 32 + i, j], [i, j])), ctx)
    assert "vectorized(8)" in str(first)
    second = lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(B, F[i, j], [b * 32 + i, j])), ctx)
    a = np.arange(40 * 64).reshape(40, 64).astype(np.float16)
    mach = machine(ctx, {A: a, B: np.full((40, 60), -1, np.float16)}, scalars={b: 1, N: 40})
    mach.run(first)
    mach.run(second)
    frag = get_fragment(mach, ctx, F)
    np.testing.assert_array_equal(frag[:8], a[32:])
    assert not frag[8:].any()
    np.testing.assert_array_equal(mach.memory[B][32:], a[32:, :60])
    assert (mach.memory[B][:32] == -1).all()


@pytest.mark.parametrize("n", [64, 80])
def test_softmax_like_body_on_accumulators(n: int) -> None:
    acc, rows = hw.wgmma_accumulator(128, n, 2), hw.wgmma_accumulator(128, n, 2).drop(1)
    S, P = buffer("S", (128, n), "float32", "local.fragment"), buffer("P", (128, n), "bfloat16", "local.fragment")
    mx = buffer("m", (128,), "float32", "local.fragment")
    ctx = context(256, {S: acc, P: acc, mx: rows}, {})
    stmt = lower_parallel(
        parallel(acc, lambda i, j: tirx.SeqStmt([
            tirx.BufferStore(S, tirx.exp2(S[i, j] * 2.0 - mx[i]), [i, j]),
            tirx.BufferStore(P, tirx.Cast("bfloat16", S[i, j]), [i, j]),
        ])), ctx)  # fmt: skip
    assert "pragma" in str(stmt) or "unroll=True" in str(stmt)
    rng = np.random.default_rng(1)
    s, m = rng.standard_normal((128, n)).astype(np.float32), rng.standard_normal(128).astype(np.float32)
    mach = machine(ctx, {})
    put_fragment(mach, ctx, S, s)
    put_fragment(mach, ctx, mx, m)
    mach.run(stmt)
    want = np.exp2(s * 2 - m[:, None])
    np.testing.assert_array_equal(get_fragment(mach, ctx, S), want)
    np.testing.assert_array_equal(get_fragment(mach, ctx, P), want.astype(numpy_type("bfloat16")))


def test_replicated_loop_stores_once_and_updates_once() -> None:
    loop = spread.coalesced((8,), 8, 1, 8).replicate(4)
    A, F = buffer("A", (8,), "int32"), buffer("F", (8,), "int32", "local.fragment")
    ctx = context(32, {F: loop}, {})
    stores = lambda i: [tirx.BufferStore(F, A[i] + 1, [i]), tirx.BufferStore(A, A[i] + 1, [i])]  # noqa: E731
    body = lambda i: tirx.SeqStmt(stores(i))  # noqa: E731
    stmt = lower_parallel(parallel(loop, body), ctx)
    mach = machine(ctx, {A: np.arange(8, dtype=np.int32)})
    mach.run(stmt)
    np.testing.assert_array_equal(mach.memory[A], np.arange(8) + 1)
    assert "if" in str(stmt)


def test_inner_serial_loop_indexes_registers() -> None:
    tile = spread.coalesced((32, 4), 32, 4, 1)
    loop = tile.drop(1)
    F, R = buffer("F", (32, 4), "float32", "local.fragment"), buffer("R", (32,), "float32", "local.fragment")
    ctx = context(32, {F: tile, R: loop}, {})

    def body(i: Any) -> Any:
        k = tirx.Var("k", "int32")
        return tirx.For(k, 0, 4, tirx.ForKind.SERIAL, tirx.BufferStore(R, R[i] + F[i, k], [i]))

    stmt = lower_parallel(parallel(loop, body), ctx)
    mach = machine(ctx, {})
    f = np.random.default_rng(2).standard_normal((32, 4)).astype(np.float32)
    put_fragment(mach, ctx, F, f)
    put_fragment(mach, ctx, R, np.zeros(32, np.float32))
    mach.run(stmt)
    np.testing.assert_allclose(get_fragment(mach, ctx, R), f.sum(1), rtol=1e-6)


def test_guard_and_gather_stay_correct() -> None:
    loop = spread.coalesced((16, 32), 64, 4, 8)
    A, I, B = buffer("A", (50, 32)), buffer("I", (16,), "int32"), buffer("B", (16, 32))
    ctx = context(64, {}, {})
    store = lambda i, j: tirx.BufferStore(B, A[I[i], j] * 2.0, [i, j])  # noqa: E731
    stmt = lower_parallel(parallel(loop, lambda i, j: tirx.IfThenElse(i + j < 30, store(i, j), None)), ctx)
    idx = np.random.default_rng(0).integers(-5, 55, 16).astype(np.int32)
    a = np.arange(1600).reshape(50, 32).astype(np.float32)
    mach = machine(ctx, {A: a, I: idx, B: np.zeros((16, 32), np.float32)})
    mach.run(stmt)
    inside = (idx >= 0) & (idx < 50)
    want = np.where(inside[:, None], a[np.clip(idx, 0, 49)] * 2, 0)
    keep = np.add.outer(np.arange(16), np.arange(32)) < 30
    np.testing.assert_array_equal(mach.memory[B], np.where(keep, want, 0))


@pytest.mark.parametrize(("bound", "vectors"), [(48, 1), (46, 0)])
def test_a_bound_between_vectors_guards_whole_vectors(bound: int, vectors: int) -> None:
    loop = spread.coalesced((16, 64), 64, 4, 16)
    A, B = buffer("A", (16, 64)), buffer("B", (16, 64))
    ctx = context(64, {}, {})
    store = lambda i, j: tirx.BufferStore(B, A[i, j], [i, j])  # noqa: E731
    inside = lambda i, j: tirx.And(tirx.Not(j >= bound), i < 9)  # noqa: E731
    stmt = lower_parallel(parallel(loop, lambda i, j: tirx.IfThenElse(inside(i, j), store(i, j), None)), ctx)
    assert str(stmt).count("vectorized(4)") == vectors
    a = np.arange(1, 1025).reshape(16, 64).astype(np.float32)
    mach = machine(ctx, {A: a, B: np.zeros((16, 64), np.float32)})
    mach.run(stmt)
    want = np.zeros_like(a)
    want[:9, :bound] = a[:9, :bound]
    np.testing.assert_array_equal(mach.memory[B], want)


def test_a_load_that_both_arms_use_is_done_for_both() -> None:
    loop = spread.coalesced((16, 64), 64, 4, 16)
    A, B = buffer("A", (16, 64)), buffer("B", (16, 64))
    ctx = context(64, {}, {})

    def store(i: Any, j: Any) -> Any:
        a = A[i, j]
        return tirx.BufferStore(B, tirx.if_then_else(i < 7, tirx.if_then_else(j < 32, a + 1.0, a + 2.0), a), [i, j])

    stmt = lower_parallel(parallel(loop, store), ctx)
    assert str(stmt).count("vectorized(4)") == 2
    a = np.arange(1, 1025).reshape(16, 64).astype(np.float32)
    mach = machine(ctx, {A: a, B: np.zeros((16, 64), np.float32)})
    mach.run(stmt)
    i, j = np.indices(a.shape)
    np.testing.assert_array_equal(mach.memory[B], a + np.where(i < 7, np.where(j < 32, 1, 2), 0))


def test_wrong_layout_is_an_error() -> None:
    loop, other = spread.coalesced((8, 32), 64, 1, 32), spread.coalesced((8, 32), 64, 4, 8)
    F, A = buffer("F", (8, 32), "float32", "local.fragment"), buffer("A", (8, 32))
    ctx = context(64, {F: other}, {})
    with pytest.raises(LoweringError, match="hold"):
        lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(F, A[i, j], [i, j])), ctx)


def test_scalar_store_runs_on_the_holders() -> None:
    F = buffer("F", (16,), "float32", "local.fragment")
    ctx = context(64, {F: spread.coalesced((16,), 16, 1, 16).replicate(4)}, {})
    mach = machine(ctx, {})
    put_fragment(mach, ctx, F, np.zeros(16, np.float32))
    mach.run(lower_scalar(tirx.BufferStore(F, tirx.const(3.0, "float32"), [5]), ctx))
    want = np.zeros(16, np.float32)
    want[5] = 3
    np.testing.assert_array_equal(get_fragment(mach, ctx, F), want)


def test_scalar_code_on_spread_fragments() -> None:
    spread_, whole = spread.coalesced((16,), 16, 1, 16).replicate(2), spread.replicated((2,), 32)
    F, G, W = (buffer(x, s, "float32", "local.fragment") for x, s in (("F", (16,)), ("G", (16,)), ("W", (2,))))
    A = buffer("A", (16,))
    ctx = context(32, {F: spread_, G: spread_, W: whole}, {})
    i = tirx.Var("i", "int32")
    loop = tirx.For(i, 0, 16, tirx.ForKind.SERIAL, tirx.SeqStmt([
        tirx.BufferStore(F, G[i] + W[1], [i]), tirx.BufferStore(A, F[i], [i]),
    ]))  # fmt: skip
    mach = machine(ctx, {A: np.zeros(16, np.float32)})
    put_fragment(mach, ctx, G, np.arange(16, dtype=np.float32))
    put_fragment(mach, ctx, W, np.asarray([1, 2], np.float32))
    mach.run(lower_scalar(loop, ctx))
    np.testing.assert_array_equal(get_fragment(mach, ctx, F), np.arange(16) + 2)
    np.testing.assert_array_equal(mach.memory[A], np.arange(16) + 2)
    lower_scalar(tirx.IfThenElse(W[0] > 0.0, tirx.BufferStore(A, W[0], [0]), None), ctx)
    for bad in (tirx.IfThenElse(F[0] > 0.0, tirx.BufferStore(A, W[0], [0]), None), tirx.BufferStore(F, F[3], [2])):
        with pytest.raises(UnsupportedTileOp):
            lower_scalar(bad, ctx)


def test_irregular_layouts() -> None:
    """A skewed shared tile and a loop whose layout is a table of digits; a lambda without closed form is rejected."""
    n, m = 16, 32
    skew = recover((n, m), lambda i, j: i * m + (i + j) % m, axes=("addr",))
    A, S, B = buffer("A", (n, m)), buffer("S", (n, m), "float32", "shared.dyn"), buffer("B", (m, n))
    loop = spread.coalesced((n, m), 64, 4, 8)
    ctx = context(64, {}, {S: skew})
    mach = machine(ctx, {A: np.arange(n * m, dtype=np.float32).reshape(n, m), B: np.zeros((m, n), np.float32)})
    mach.run(lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(S, A[i, j], [i, j])), ctx))
    mach.epoch += 1
    mach.run(lower_parallel(parallel(loop.transpose(), lambda j, i: tirx.BufferStore(B, S[i, j], [j, i])), ctx))
    np.testing.assert_array_equal(mach.memory[B], mach.memory[A].T)
    strange = recover(
        (n, m), lambda i, j: (i * 37 + j * j * 11) % 1009 % 64 * 0 + (i * m + j) * 5 % 512, axes=("addr",)
    )
    ctx = context(64, {}, {S: strange})
    lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(S, A[i, j], [i, j])), ctx)
    shuffled = np.random.default_rng(0).permutation(n * m).reshape(n, m, 1)
    ctx = context(64, {}, {S: Table((n, m), ("addr",), {"addr": shuffled})})
    with pytest.raises(UnsupportedTileOp, match="closed form"):
        lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(S, A[i, j], [i, j])), ctx)


def test_unknown_register_is_reported() -> None:
    loop = spread.coalesced((8, 32), 64, 4, 8)
    F, K, A = buffer("F", (8, 32), "float32", "local.fragment"), buffer("K", (8,), "int32"), buffer("A", (8, 32))
    ctx = context(64, {F: loop}, {})
    with pytest.raises(UnsupportedTileOp, match="compile time"):
        lower_parallel(parallel(loop, lambda i, j: tirx.BufferStore(A, F[i, K[i]], [i, j])), ctx)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_async_copy_fills_with_zeros(dtype: str) -> None:
    loop = spread.coalesced((32, 64), 128, 8, 8)
    N, b = tirx.Var("N", "int32"), tirx.Var("b", "int32")
    A, S = buffer("A", (N, 64), dtype), buffer("S", (32, 64), dtype, "shared.dyn")
    ctx = context(128, {}, {S: SharedTile(32, 64, 8 * numpy_type(dtype).itemsize, 128).layout})
    nest = parallel(loop, lambda i, j: tirx.BufferStore(S, A[b * 32 + i, j], [i, j]), **{attrs.ASYNC_COPY: 1})
    stmt = lower_parallel(nest, ctx)
    assert "cp_async(16, 1" in str(stmt)
    a = np.random.default_rng(0).standard_normal((40, 64)).astype(numpy_type(dtype))
    mach = machine(ctx, {A: a}, scalars={b: 1, N: 40})
    mach.run(stmt)
    np.testing.assert_array_equal(get_shared(mach, ctx, S), np.pad(a[32:], ((0, 24), (0, 0))))
