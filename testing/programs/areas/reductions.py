# SPDX-License-Identifier: Apache-2.0
"""Reductions, scans and reducers: any dimension, width, block and type; NaN and infinities; accumulation."""

from __future__ import annotations

import torch
from witness import changed, ints, out, program, randn, refused, run

import tilelang.language as T

SUMS = {"rtol": 1e-5, "atol": 1e-5}


@program(shape=((1, 48, 48), (4, 48, 64), (2, 80, 160), (3, 33, 96), (5, 7, 32)))
def rows_over_lanes_of_any_number(shape):
    """The reduced dimension is spread over threads whose number is no power of two."""
    M, N, threads = shape

    @T.prim_func
    def main(
        A: T.Tensor((M, N), "float32"),
        S: T.Tensor((M,), "float32"),
        X: T.Tensor((M,), "float32"),
        L: T.Tensor((M,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((M, N), "float32")
            s = T.alloc_fragment((M,), "float32")
            x = T.alloc_fragment((M,), "float32")
            m = T.alloc_fragment((M,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, s, dim=1)
            T.reduce_max(a, x, dim=1)
            T.reduce_min(a, m, dim=1)
            T.copy(s, S)
            T.copy(x, X)
            T.copy(m, L)

    a = torch.arange(1, M * N + 1).float().view(M, N)
    a[:, ::3] *= -1
    return run(main, a, out(a.sum(1)), out(a.amax(1)), out(a.amin(1)))


@program(dim=(0, 1, 2, -1), scopes=("ff", "fs", "sf", "ss"))
def any_dimension_of_either_memory(dim, scopes):
    """The tile and its reduction lie in registers or in shared memory."""
    shape = (6, 10, 14)
    rest = tuple(n for k, n in enumerate(shape) if k != dim % 3)

    @T.prim_func
    def main(A: T.Tensor(shape, "float32"), O: T.Tensor(rest, "float32")):
        with T.Kernel(1, threads=96):
            a = (T.alloc_fragment if scopes[0] == "f" else T.alloc_shared)(shape, "float32")
            o = (T.alloc_fragment if scopes[1] == "f" else T.alloc_shared)(rest, "float32")
            T.copy(A, a)
            T.reduce_sum(a, o, dim=dim)
            T.copy(o, O)

    a = ints(*shape, dtype="float32")
    return run(main, a, out(a.sum(dim)))


@program(kind=("sum", "max", "min", "absmax", "abssum"), dtype=("float32", "float16", "bfloat16", "int32", "int8"))
def kinds_and_types(kind, dtype):
    """Every reduction of numbers for every type, along both dimensions."""

    @T.prim_func
    def main(A: T.Tensor((12, 20), dtype), R: T.Tensor((12,), dtype), C: T.Tensor((20,), dtype)):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((12, 20), dtype)
            r = T.alloc_fragment((12,), dtype)
            c = T.alloc_fragment((20,), dtype)
            T.copy(A, a)
            getattr(T, f"reduce_{kind}")(a, r, dim=1)
            getattr(T, f"reduce_{kind}")(a, c, dim=0)
            T.copy(r, R)
            T.copy(c, C)

    a = ints(12, 20, low=-3, high=4, dtype=dtype)
    wide = a.abs() if kind.startswith("abs") else a
    fold = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[kind.removeprefix("abs")]
    want = [fold(wide.double(), d).to(a.dtype) for d in (1, 0)]
    return run(main, a, out(want[0]), out(want[1]))


@program(kind=("bitand", "bitor", "bitxor"), dtype=("int32", "uint8", "int64", "bool"))
def bits(kind, dtype):
    """Reductions of bits, on whole numbers and on truth values."""

    @T.prim_func
    def main(A: T.Tensor((12, 20), dtype), O: T.Tensor((12,), dtype)):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((12, 20), dtype)
            o = T.alloc_fragment((12,), dtype)
            T.copy(A, a)
            getattr(T, f"reduce_{kind}")(a, o, dim=1)
            T.copy(o, O)

    a = ints(12, 20, low=0, high=2 if dtype == "bool" else 120, dtype=dtype)
    a[3] = 1
    want = a[:, 0].clone()
    for j in range(1, 20):
        want = {"bitand": want & a[:, j], "bitor": want | a[:, j], "bitxor": want ^ a[:, j]}[kind]
    return run(main, a, out(want))


@program(kind=("sum", "max", "min"), dim=(0, 1))
def into_what_is_there(kind, dim):
    """`clear=False` goes on from the values of the result."""

    @T.prim_func
    def main(A: T.Tensor((3, 16, 24), "float32"), O: T.Tensor((40 - 24 + 8 * dim if dim else 24,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((16, 24), "float32")
            o = T.alloc_fragment((24 if dim == 0 else 16,), "float32")
            T.fill(o, 2.0)
            for k in T.serial(3):
                T.copy(A[k, :, :], a)
                getattr(T, f"reduce_{kind}")(a, o, dim=dim, clear=False)
            for i in T.Parallel(24 if dim == 0 else 16):
                O[i] = o[i]

    a = ints(3, 16, 24, dtype="float32")
    fold = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[kind]
    want = torch.full((24 if dim == 0 else 16,), 2.0)
    for k in range(3):
        here = fold(a[k], dim)
        want = want + here if kind == "sum" else fold(torch.stack([want, here]), 0)
    full = torch.full((24,), -5.0)
    full[: len(want)] = want
    return run(main, a, changed(torch.full((24,), -5.0), full))


@program(shape=((48, 64), (50, 10), (7, 72), (33, 8)), threads=(160, 192, 384), clear=(True, False))
def rows_that_do_not_fill_the_block(shape, threads, clear):
    """Where rows and columns leave threads and registers unused, these count for nothing and are not looked at."""
    M, N = shape

    @T.prim_func
    def main(
        A: T.Tensor((M, N), "float32"),
        R: T.Tensor((M,), "float32"),
        C: T.Tensor((N,), "float32"),
        All: T.Tensor((1,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            f = T.alloc_fragment((M, N), "float32")
            r = T.alloc_fragment((M,), "float32")
            c = T.alloc_fragment((N,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A, f)
            T.fill(r, 1.0)
            T.fill(c, 2.0)
            T.fill(total, 3.0)
            T.reduce_sum(f, r, dim=1, clear=clear)
            T.reduce_min(f, c, dim=0, clear=clear)
            T.reduce_max(r, total, dim=0, clear=clear)
            T.copy(r, R)
            T.copy(c, C)
            T.copy(total, All)

    a = ints(M, N).float()
    rows, columns = a.sum(1) + (not clear), a.amin(0)
    total = rows.amax(0, keepdim=True)
    if not clear:
        columns, total = columns.clamp(max=2), total.clamp(min=3)
    return run(main, a, out(rows), out(columns), out(total))


@program(keep=(True, False))
def kept_dimension(keep):
    """The result may have a one where the dimension was, and read it back over the row."""

    @T.prim_func
    def main(A: T.Tensor((10, 36), "float32"), O: T.Tensor((10, 36), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((10, 36), "float32")
            top = T.alloc_fragment((10, 1) if keep else (10,), "float32")
            T.copy(A, a)
            T.reduce_max(a, top, dim=1)
            for i, j in T.Parallel(10, 36):
                a[i, j] = a[i, j] - (top[i, 0] if keep else top[i])
            T.copy(a, O)

    a = randn(10, 36)
    return run(main, a, out(a - a.amax(1, keepdim=True)))


@program(shape=((3, 5, 7), (1, 9, 33)), threads=(96, 160))
def kept_dimension_in_the_middle(shape, threads):
    """A dimension in the middle of a shared tile is reduced, into a shared tile that keeps it and into registers."""
    low, _, high = shape

    @T.prim_func
    def main(A: T.Tensor(shape, "int32"), B: T.Tensor((low, 1, high), "int32"), C: T.Tensor((low, high), "int32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared(shape, "int32")
            kept = T.alloc_shared((low, 1, high), "int32")
            most = T.alloc_fragment((low, high), "int32")
            T.copy(A, S)
            T.fill(kept, 100)
            T.reduce_max(S, most, dim=1)
            T.reduce_sum(S, kept, dim=1, clear=False)
            T.copy(kept, B)
            T.copy(most, C)

    a = ints(*shape)
    return run(main, a, out(a.sum(1, keepdim=True, dtype=torch.int32) + 100), out(a.max(1).values))


@program(part=((0, 20), (7, 30)))
def part_of_a_tile(part):
    """A slice is reduced, the rest of the tile does not count."""
    low, high = part

    @T.prim_func
    def main(A: T.Tensor((8, 48), "float32"), O: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8, 48), "float32")
            o = T.alloc_fragment((8,), "float32")
            T.copy(A, S)
            T.reduce_sum(S[:, low:high], o, dim=1)
            T.copy(o, O)

    a = ints(8, 48, dtype="float32")
    return run(main, a, out(a[:, low:high].sum(1)))


@program()
def infinities_and_no_numbers():
    """Maxima start from the smallest number there is; `nan_propagate` decides what NaN does."""

    @T.prim_func
    def main(
        A: T.Tensor((4, 32), "float32"),
        X: T.Tensor((4,), "float32"),
        N: T.Tensor((4,), "float32"),
        S: T.Tensor((4,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            a = T.alloc_fragment((4, 32), "float32")
            x = T.alloc_fragment((4,), "float32")
            n = T.alloc_fragment((4,), "float32")
            s = T.alloc_fragment((4,), "float32")
            T.copy(A, a)
            T.reduce_max(a, x, dim=1)
            T.reduce_max(a, n, dim=1, nan_propagate=True)
            T.reduce_sum(a, s, dim=1)
            T.copy(x, X)
            T.copy(n, N)
            T.copy(s, S)

    inf, nan = float("inf"), float("nan")
    a = ints(4, 32, dtype="float32")
    a[1] = -inf
    a[2, 5] = nan
    a[3, 7] = inf
    skipping = torch.where(a.isnan(), torch.tensor(-inf), a).amax(1)
    return run(main, a, out(skipping), out(a.amax(1)), out(a.sum(1)))


@program(axis=((0, False), (1, False), (1, True), (-1, True)), shape=((32, 64), (5, 33)), threads=(96,))
def prefix_sums(axis, shape, threads):
    """T.cumsum along either axis and back, for any tile and block."""
    dim, reverse = axis

    @T.prim_func
    def main(A: T.Tensor(shape, "float32"), B: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared(shape, "float32")
            T.copy(A, S)
            T.cumsum(S, dim=dim, reverse=reverse)
            T.copy(S, B)

    a = ints(*shape, dtype="float32")
    return run(main, a, out(a.flip(dim).cumsum(dim).flip(dim) if reverse else a.cumsum(dim)))


@program(dtype=("int32", "float32"), scope=("shared", "fragment"))
def scans_into_another_buffer(dtype, scope):
    """A scan with a destination of its own, of sums and of maxima, from registers as well."""
    alloc = T.alloc_shared if scope == "shared" else T.alloc_fragment

    @T.prim_func
    def main(A: T.Tensor((50,), dtype), P: T.Tensor((50,), dtype), Q: T.Tensor((50,), dtype)):
        with T.Kernel(1, threads=64):
            S = alloc((50,), dtype)
            D = alloc((50,), dtype)
            T.copy(A, S)
            T.cumsum(S, D)
            T.copy(D, P)
            T.cummax(S, D, reverse=True)
            T.copy(D, Q)

    a = ints(50, dtype=dtype)
    return run(main, a, out(a.cumsum(0).to(a.dtype)), out(a.flip(0).cummax(0).values.flip(0)))


@program()
def scan_of_a_part():
    """Only the slice is scanned; what lies beside it stays."""

    @T.prim_func
    def main(A: T.Tensor((8, 80), "float32"), B: T.Tensor((8, 80), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 80), "float32")
            T.copy(A, S)
            T.cumsum(S[0:8, 0:48], dim=1)
            T.copy(S, B)

    a = ints(8, 80, dtype="float32")
    want = a.clone()
    want[:, :48] = a[:, :48].cumsum(1)
    return run(main, a, out(want))


@program(width=(40, 48, 120), threads=(96, 128))
def reducer_counts_once(width, threads):
    """Whatever the tile and the block, each element reaches a reducer exactly once."""

    @T.prim_func
    def main(A: T.Tensor((32, 240), "float32"), X: T.Tensor((240,), "float32"), Y: T.Tensor((32,), "float32")):
        with T.Kernel(2, threads=threads) as b:
            r = T.alloc_reducer((16,), "float32", op="sum")
            y = T.alloc_fragment((16,), "float32")
            T.reducer_init(r)
            for k in T.serial(T.ceildiv(240, width)):
                for i, j in T.Parallel(16, width):
                    T.reducer_update(r[i], A[b * 16 + i, k * width + j] * X[k * width + j])
            T.finalize_reducer(r, y)
            T.copy(y, Y[b * 16 : (b + 1) * 16])

    a, x = ints(32, 240, dtype="float32"), ints(240, dtype="float32")
    return run(main, a, x, out(a @ x))


@program(form=("all", "none"))
def reducer_as_a_fragment(form):
    """The older form: filled with its identity, updated by assignment, finished in place."""

    @T.prim_func
    def main(A: T.Tensor((24, 40), "float32"), S: T.Tensor((40,), "float32"), M: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=96):
            r = T.alloc_reducer((40,), "float32", op="sum", replication=form)
            m = T.alloc_reducer((1,), "float32", op="min", replication="all")
            T.clear(r)
            T.fill(m, T.infinity("float32"))
            for i, j in T.Parallel(24, 40):
                r[j] += A[i, j]
            for i, j in T.Parallel(24, 40):
                m[0] = T.min(m[0], A[i, j])
            T.finalize_reducer(r)
            T.finalize_reducer(m)
            T.copy(r, S)
            T.copy(m, M)

    a = ints(24, 40, dtype="float32")
    return run(main, a, out(a.sum(0)), out(a.amin().view(1)))


@program(op=("max", "min", "bitor", "bitand", "bitxor"))
def reducers_of_each_kind(op):
    """Every operation of a reducer, with a value to start from."""
    first = {"max": 3, "min": -3, "bitor": 8, "bitand": 127, "bitxor": 5}[op]

    @T.prim_func
    def main(A: T.Tensor((9, 21), "int32"), O: T.Tensor((9,), "int32")):
        with T.Kernel(1, threads=64):
            r = T.alloc_reducer((9,), "int32", op=op)
            o = T.alloc_fragment((9,), "int32")
            T.reducer_init(r, first)
            for i, j in T.Parallel(9, 21):
                T.reducer_update(r[i], A[i, j])
            T.finalize_reducer(r, o)
            T.copy(o, O)

    a = ints(9, 21, low=0, high=100)
    want = torch.full((9,), first, dtype=torch.int32)
    for j in range(21):
        x = a[:, j]
        want = {
            "max": torch.maximum(want, x),
            "min": torch.minimum(want, x),
            "bitor": want | x,
            "bitand": want & x,
            "bitxor": want ^ x,
        }[op]
    return run(main, a, out(want))


@program()
def any_and_all():
    """T.any_of and T.all_of over buffers and slices."""

    @T.prim_func
    def main(A: T.Tensor((4, 24), "bool"), O: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=32) as b:
            S = T.alloc_shared((24,), "bool")
            T.copy(A[b, :], S)
            if T.any_of(S):
                O[b] = 1
            else:
                O[b] = 0
            if T.all_of(S[0:12]):
                O[b] = O[b] + 2

    a = torch.zeros(4, 24).bool()
    a[1, 20] = True
    a[2, :12] = True
    a[3] = True
    return run(main, a, out(torch.tensor([0, 1, 3, 3]).int()))


@program(rows=(1, 9), width=(40, 130))
def softmax_and_norm(rows, width):
    """Chains of reductions and rowwise updates on one fragment."""

    @T.prim_func
    def main(
        A: T.Tensor((rows, width), "float32"),
        P: T.Tensor((rows, width), "float32"),
        Q: T.Tensor((rows, width), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((rows, width), "float32")
            e = T.alloc_fragment((rows, width), "float32")
            v = T.alloc_fragment((rows,), "float32")
            s = T.alloc_fragment((rows,), "float32")
            T.copy(A, a)
            T.reduce_max(a, v, dim=1)
            for i, j in T.Parallel(rows, width):
                e[i, j] = T.exp(a[i, j] - v[i])
            T.reduce_sum(e, s, dim=1)
            for i, j in T.Parallel(rows, width):
                e[i, j] /= s[i]
            T.copy(e, P)
            T.reduce_sum(a, s, dim=1)
            for i in T.Parallel(rows):
                s[i] = s[i] / width
            for i, j in T.Parallel(rows, width):
                e[i, j] = (a[i, j] - s[i]) * (a[i, j] - s[i])
            T.reduce_sum(e, v, dim=1)
            for i, j in T.Parallel(rows, width):
                a[i, j] = (a[i, j] - s[i]) * T.rsqrt(v[i] / width + 1e-5)
            T.copy(a, Q)

    a = randn(rows, width)
    want = torch.nn.functional.layer_norm(a, (width,))
    return run(main, a, out(a.softmax(1), **SUMS), out(want, rtol=1e-4, atol=1e-4))


@program(wrong=("shape", "dim", "bits"))
def reductions_that_cannot_be_are_refused(wrong):
    """A result of another shape, a dimension that is not there, bits of fractions."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8, 16), "float32")):
            with T.Kernel(1, threads=32):
                a = T.alloc_fragment((8, 16), "float32")
                o = T.alloc_fragment((16,) if wrong == "shape" else (8,), "float32")
                T.copy(A, a)
                if wrong == "bits":
                    T.reduce_bitor(a, o, dim=1)
                else:
                    T.reduce_sum(a, o, dim=5 if wrong == "dim" else 1)

        return main

    return refused(make)


@program(batch=(1, 2))
def several_rows_at_once(batch):
    """`batch` joins the exchange of several rows, never their sums."""

    @T.prim_func
    def main(A: T.Tensor((8, 96), "float32"), O: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=96):
            a = T.alloc_fragment((8, 96), "float32")
            o = T.alloc_fragment((8,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, o, dim=1, batch=batch)
            T.copy(o, O)

    a = ints(8, 96, dtype="float32")
    return run(main, a, out(a.sum(1)))
