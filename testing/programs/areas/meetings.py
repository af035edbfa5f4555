# SPDX-License-Identifier: Apache-2.0
"""Programs in which features meet: stores of one tensor again and again, guarded copies in pipelines, views that are
written, blocks of odd sizes, launches that share names."""

from __future__ import annotations

import torch
from witness import changed, ints, out, program, run

import tilelang
import tilelang.language as T

# -- a tensor that a kernel touches more than once


@program(stages=(0, 2))
def stored_again_and_again(stages):
    """Every iteration stores to one tile of a tensor, and twice to one of its own: the last store stays."""

    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16"), O: T.Tensor((32, 64), "float16"), P: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float16")
            W = T.alloc_shared((32, 64), "float16")
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[k * 32, 0], S)
                for i, j in T.Parallel(32, 64):
                    W[i, j] = S[i, j] * 2
                T.copy(W, O)
                T.copy(W, P[k * 32, 0])
                T.copy(S, P[k * 32, 0])

    a = ints(128, 64, dtype="float16")
    return run(main, a, out(a[96:] * 2), out(a))


@program(then=("loop", "fragment", "elements"))
def stored_then_touched(then):
    """What a tile was stored to is read with another order of rows, or overwritten in part."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), O: T.Tensor((32, 64), "float16"), P: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float16")
            f = T.alloc_fragment((32, 64), "float16")
            T.copy(A, S)
            T.copy(S, O)
            if then == "loop":
                for i, j in T.Parallel(32, 64):
                    P[i, j] = O[31 - i, j]
            elif then == "fragment":
                T.copy(O, f)
                for i, j in T.Parallel(32, 64):
                    P[31 - i, j] = f[i, j]
            else:
                for i in T.Parallel(32):
                    O[i, 3] = 4
                for i, j in T.Parallel(32, 64):
                    P[i, j] = S[31 - i, j]

    a = ints(32, 64, dtype="float16")
    want = a.clone()
    if then == "elements":
        want[:, 3] = 4
    return run(main, a, out(want), out(a.flip(0)))


@program(threads=(96,))
def stored_by_some_read_by_all(threads):
    """Two warps store a tile; then the whole block reads the tensor."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), O: T.Tensor((32, 64), "float16"), P: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            S = T.alloc_shared((32, 64), "float16")
            T.copy(A, S)
            if tx < 64:
                T.copy(S, O)
            for i, j in T.Parallel(32, 64):
                P[i, j] = O[31 - i, j]

    a = ints(32, 64, dtype="float16")
    return run(main, a, out(a), out(a.flip(0)))


@program()
def stored_twice_by_one_block():
    """In a branch that one block takes a tensor is stored again; behind it all blocks load what they stored."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 32, 64), "float16"),
        O: T.Tensor((3, 32, 64), "float16"),
        P: T.Tensor((3, 32, 64), "float16"),
        c: T.int32,
    ):
        with T.Kernel(3, threads=128) as b:
            S = T.alloc_shared((32, 64), "float16")
            f = T.alloc_fragment((32, 64), "float16")
            T.copy(A[b, :, :], S)
            if b != c:
                T.copy(S, O[b, :, :])
            else:
                T.copy(S, O[b, :, :])
                T.fill(S, 1)
                T.copy(S, O[b, :, :])
            T.copy(O[b, :, :], f)
            for i, j in T.Parallel(32, 64):
                P[b, 31 - i, j] = f[i, j]

    a = ints(3, 32, 64, dtype="float16")
    want = a.clone()
    want[1] = 1
    return run(main, a, out(want), out(want.flip(1)), 1)


@program(stages=(0, 2), through=("shared", "both"))
def next_rows_from_these(stages, through):
    """A pipeline loads rows that its last iteration has stored, by the copy engine and by threads."""

    @T.prim_func
    def main(X: T.Tensor((160, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float16")
            f = T.alloc_fragment((32, 64), "float16")
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(X[k * 32, 0], S)
                for i, j in T.Parallel(32, 64):
                    f[i, j] = S[31 - i, j] + 1
                T.copy(f, S)
                T.copy(S, X[(k + 1) * 32, 0])
                if through == "both":
                    T.copy(f, X[(k + 1) * 32, 0])

    a = ints(160, 64, dtype="float16")
    want = a.view(5, 32, 64).clone()
    for k in range(4):
        want[k + 1] = want[k].flip(0) + 1
    return run(main, changed(a, want.view(160, 64)))


@program()
def filled_then_scattered():
    """A row of a tensor is filled by all threads, then some elements by those that have them."""

    @T.prim_func
    def main(I: T.Tensor((3, 20), "int32"), O: T.Tensor((3, 64), "int32")):
        with T.Kernel(3, threads=64) as b:
            for j in T.Parallel(64):
                O[b, j] = -1
            for j in T.Parallel(20):
                O[b, I[b, j]] = j

    places = torch.stack([torch.randperm(64)[:20] for _ in range(3)])
    want = torch.full((3, 64), -1, dtype=torch.int32)
    want.scatter_(1, places, torch.arange(20, dtype=torch.int32).expand(3, 20))
    return run(main, places.to(torch.int32), out(want))


@program(memory=("global", "shared"))
def cleared_then_counted(memory):
    """Bins are cleared by one order of threads, counted by another, and read by a third."""

    @T.prim_func
    def main(I: T.Tensor((200,), "int32"), O: T.Tensor((2, 17), "int32"), P: T.Tensor((2, 17), "int32")):
        with T.Kernel(2, threads=96) as b:
            S = T.alloc_shared((17,), "int32")
            if memory == "shared":
                T.clear(S)
                for i in T.Parallel(200):
                    T.atomic_add(S[I[i]], b + 1)
                T.copy(S, O[b, :])
                for j in T.Parallel(17):
                    P[b, j] = S[16 - j]
            else:
                for j in T.Parallel(17):
                    O[b, 16 - j] = 0
                for i in T.Parallel(200):
                    T.atomic_add(O[b, I[i]], b + 1)
                for j in T.Parallel(17):
                    P[b, j] = O[b, 16 - j]

    bins = ints(200, low=0, high=17)
    count = torch.bincount(bins.long(), minlength=17).to(torch.int32)
    want = torch.stack([count, 2 * count])
    return run(main, bins, out(want), out(want.flip(1)))


# -- pipelines


@program(stages=(2, 3), limit=(0, 3))
def consumers_of_every_kind(stages, limit):
    """A loaded tile is multiplied, reduced and stored, in a loop that may be left early."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 96), "float16"),
        O: T.Tensor((128, 96), "float16"),
        R: T.Tensor((32,), "float32"),
        C: T.Tensor((32, 32), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            rows = T.alloc_fragment((32,), "float32")
            T.clear(acc)
            T.clear(rows)
            for q in T.serial(4):
                if q >= n:
                    break
                for k in T.Pipelined(3, num_stages=stages):
                    T.copy(A[q * 32, k * 32], S)
                    T.gemm(S, S, acc, transpose_B=True)
                    T.reduce_sum(S, rows, dim=1, clear=False)
                    T.copy(S, O[q * 32, k * 32])
            T.copy(acc, C)
            T.copy(rows, R)

    a = ints(128, 96, low=-3, high=4, dtype="float16")
    before = torch.full((128, 96), 5.0).half()
    seen = a[: 32 * limit].float().view(limit, 32, 96)
    stored = torch.cat([a[: 32 * limit], before[32 * limit :]])
    products = (seen @ seen.transpose(1, 2)).sum(0)
    return run(main, a, changed(before, stored), out(seen.sum((0, 2))), out(products), limit)


@program(stages=(0, 3), trips=(0, 1, 5))
def guards_at_both_ends(stages, trips):
    """One copy is skipped in the first iteration, another in the last: their tiles keep what they hold."""

    @T.prim_func
    def main(A: T.Tensor((80, 32), "float32"), O: T.Tensor((16, 32), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            X = T.alloc_shared((16, 32), "float32")
            Y = T.alloc_shared((16, 32), "float32")
            f = T.alloc_fragment((16, 32), "float32")
            T.clear(f)
            T.clear(X)
            T.clear(Y)
            for k in T.Pipelined(n, num_stages=stages):
                if k > 0:
                    T.copy(A[(k - 1) * 16, 0], X)
                if k < n - 1:
                    T.copy(A[(k + 1) * 16, 0], Y)
                for i, j in T.Parallel(16, 32):
                    f[i, j] += X[i, j] * 2 + Y[i, j] * (k + 1)
            T.copy(f, O)

    a = ints(80, 32).float()
    x = y = want = torch.zeros(16, 32)
    for k in range(trips):
        x = a[(k - 1) * 16 :][:16] if k > 0 else x
        y = a[(k + 1) * 16 :][:16] if k < trips - 1 else y
        want = want + x * 2 + y * (k + 1)
    return run(main, a, out(want), trips)


@program(stages=(0, 2), mask=((0, 1, 0, 1), (1, 0, 0, 0)))
def reloaded_where_memory_says_so(stages, mask):
    """An operand is loaded again only in some iterations; the others multiply with the one before."""

    @T.prim_func
    def main(A: T.Tensor((4, 32, 32), "float16"), M: T.Tensor((4,), "int32"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 32), "float16")
            W = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            T.clear(acc)
            T.fill(S, 1)
            for k in T.Pipelined(4, num_stages=stages):
                if M[k] != 0:
                    T.copy(A[k, :, :], S)
                T.copy(A[k, :, :], W)
                T.gemm(S, W, acc, transpose_B=True)
            T.copy(acc, C)

    a = ints(4, 32, 32, low=-3, high=4, dtype="float16")
    held, want = torch.ones(32, 32), torch.zeros(32, 32)
    for k in range(4):
        held = a[k].float() if mask[k] else held
        want += held @ a[k].float().t()
    return run(main, a, torch.tensor(mask, dtype=torch.int32), out(want))


@program(stages=((2, 2), (3, 0)))
def inner_pipelines_of_growing_length(stages):
    """The outer tile is read inside and behind an inner pipeline that is empty first and longer each time."""
    outer, inner = stages

    @T.prim_func
    def main(A: T.Tensor((128, 32), "float16"), B: T.Tensor((128, 32), "float16"), O: T.Tensor((128, 32), "float32")):
        with T.Kernel(1, threads=128):
            Q = T.alloc_shared((32, 32), "float16")
            K = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            for q in T.Pipelined(4, num_stages=outer):
                T.copy(A[q * 32, 0], Q)
                T.clear(acc)
                for k in T.Pipelined(q, num_stages=inner):
                    T.copy(B[k * 32, 0], K)
                    T.gemm(Q, K, acc, transpose_B=True)
                for i, j in T.Parallel(32, 32):
                    acc[i, j] = acc[i, j] + Q[j, i]
                T.copy(acc, O[q * 32, 0])

    a, b = (ints(4, 32, 32, low=-3, high=4, dtype="float16") for _ in range(2))
    want = [
        a[q].float().t() + sum((a[q].float() @ b[k].float().t() for k in range(q)), torch.zeros(32, 32))
        for q in range(4)
    ]
    return run(main, a.view(128, 32), b.view(128, 32), out(torch.cat(want)))


@program(stages=(0, 2))
def pipelines_in_a_while(stages):
    """A list in memory, walked by `while` with `continue`, names what each pipeline loads."""

    @T.prim_func
    def main(A: T.Tensor((4, 64, 64), "float16"), L: T.Tensor((8,), "int32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_var("int32", 0)
            T.clear(acc)
            while L[p] >= 0:
                p = p + 1
                if L[p - 1] == 3:
                    continue
                for k in T.Pipelined(2, num_stages=stages):
                    T.copy(A[L[p - 1], 0, k * 32], S)
                    T.copy(A[L[p - 1], 0, k * 32], W)
                    T.gemm(S, W, acc, transpose_B=True)
            T.copy(acc, O)

    a, order = ints(4, 64, 64, low=-3, high=4, dtype="float16"), [1, 3, 0, 2, 3, 1, -1, 0]
    used = a[[1, 0, 2, 1]].float()
    return run(main, a, torch.tensor(order, dtype=torch.int32), out((used @ used.transpose(1, 2)).sum(0)))


@program(op=("sum", "max"), threads=(96,))
def two_reducers_of_one_tile(op, threads):
    """In a pipeline, rows and columns of each loaded tile go to a reducer of their own."""

    @T.prim_func
    def main(A: T.Tensor((40, 40), "float32"), Y: T.Tensor((8,), "float32"), Z: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((8, 40), "float32")
            rows, columns = T.alloc_reducer((8,), "float32", op=op), T.alloc_reducer((40,), "float32", op=op)
            y, z = T.alloc_fragment((8,), "float32"), T.alloc_fragment((40,), "float32")
            T.reducer_init(rows)
            T.reducer_init(columns)
            for k in T.Pipelined(5, num_stages=2):
                T.copy(A[k * 8, 0], S)
                for i, j in T.Parallel(8, 40):
                    T.reducer_update(rows[i], S[i, j])
                    T.reducer_update(columns[j], S[i, j] * 2)
            T.finalize_reducer(rows, y)
            T.finalize_reducer(columns, z)
            T.copy(y, Y)
            T.copy(z, Z)

    a = ints(5, 8, 40).float()
    fold = torch.sum if op == "sum" else torch.amax
    return run(main, a.view(40, 40), out(fold(a, (0, 2))), out(2 * fold(a, (0, 1))))


# -- tiles


@program(threads=(96, 257), dtype=("int8", "float16"))
def stencil_that_wraps(threads, dtype):
    """Neighbours around the edge of an odd tile, stored over the tile upside down and out of it transposed."""

    @T.prim_func
    def main(A: T.Tensor((13, 29), dtype), O: T.Tensor((29, 13), dtype)):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((13, 29), dtype)
            f = T.alloc_fragment((13, 29), dtype)
            T.copy(A, S)
            for i, j in T.Parallel(13, 29):
                f[i, j] = S[(i + 1) % 13, j] + S[i, (j + 28) % 29]
            for i, j in T.Parallel(13, 29):
                S[12 - i, j] = f[i, j]
            for j, i in T.Parallel(29, 13):
                O[j, i] = S[i, j]

    a = ints(13, 29, low=0, high=40, dtype=dtype)
    wide = a.to(torch.int32)
    want = (torch.roll(wide, -1, 0) + torch.roll(wide, 1, 1)).flip(0).t()
    return run(main, a, out(want.to(a.dtype)))


@program(types=(("float16", "int16", 1), ("float32", "uint8", 4), ("int64", "int32", 2)))
def views_of_views(types):
    """Another type in another shape over the same bytes: what is written through it the first name reads."""
    dtype, seen, ratio = types
    width = 24 * ratio

    @T.prim_func
    def main(
        A: T.Tensor((6, 24), dtype),
        O: T.Tensor((6, width), seen),
        P: T.Tensor((3, 2 * width), seen),
        Q: T.Tensor((6, 24), dtype),
    ):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((6, 24), dtype)
            T.copy(A, S)
            V = T.view(S, (6, width), dtype=seen)
            W = T.reshape(V, (3, 2 * width))
            T.copy(V, O)
            for i, j in T.Parallel(3, 2 * width):
                W[i, j] = W[i, j] ^ T.cast(1, seen)
            T.copy(W, P)
            T.copy(S, Q)

    a = ints(6, 24, low=0, high=100, dtype=dtype)
    parts = a.view(getattr(torch, seen))
    return run(main, a, out(parts), out((parts ^ 1).view(3, 2 * width)), out((parts ^ 1).view(a.dtype)))


@program(threads=(96,))
def both_names_are_written(threads):
    """A tile and its view are written in turns; sums along rows of either follow."""

    @T.prim_func
    def main(A: T.Tensor((8, 32), "int32"), O: T.Tensor((8,), "int32"), P: T.Tensor((32, 8), "int32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((8, 32), "int32")
            V = T.view(S, (32, 8))
            r = T.alloc_fragment((8,), "int32")
            T.copy(A, S)
            for _k in T.serial(3):
                for i, j in T.Parallel(32, 8):
                    V[i, j] = V[i, j] + j
                T.reduce_sum(S, r, dim=1)
                for i, j in T.Parallel(8, 32):
                    S[i, j] = S[i, j] + r[i]
            T.copy(V, P)
            T.reduce_sum(V, r, dim=0)
            T.copy(r, O)

    a = ints(8, 32)
    tile = a
    for _ in range(3):
        tile = (tile.view(32, 8) + torch.arange(8, dtype=torch.int32)).view(8, 32)
        tile = tile + tile.sum(1, keepdim=True, dtype=torch.int32)
    return run(main, a, out(tile.view(32, 8).sum(0, dtype=torch.int32)), out(tile.view(32, 8)))


@program(threads=(33, 257))
def windows_that_end_early(threads):
    """Elements of a parallel nest of three loops sum what comes before them, with `break` and `continue`, or do not."""

    @T.prim_func
    def main(A: T.Tensor((3, 5, 17), "int32"), O: T.Tensor((3, 5, 17), "int32")):
        with T.Kernel(1, threads=threads):
            for i, j, k in T.Parallel(3, 5, 17):
                if (i + j + k) % 3 != 1:
                    s = T.alloc_var("int32", 0)
                    for q in T.serial(17):
                        if q > k:
                            break
                        if A[i, j, q] < 0:
                            continue
                        s += A[i, j, q]
                    O[i, j, k] = s
                else:
                    O[i, j, k] = -1

    a = ints(3, 5, 17)
    i, j, k = torch.meshgrid(torch.arange(3), torch.arange(5), torch.arange(17), indexing="ij")
    sums = a.clamp(min=0).cumsum(2).to(torch.int32)
    return run(main, a, out(torch.where((i + j + k) % 3 == 1, -1, sums).to(torch.int32)))


@program(scan=((0, True), (2, False)))
def scans_of_cubes(scan):
    """A tile of rank three is summed up along an axis and reduced along another."""
    dim, reverse = scan

    @T.prim_func
    def main(A: T.Tensor((4, 5, 33), "int32"), O: T.Tensor((4, 5, 33), "int32"), M: T.Tensor((4, 33), "int32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((4, 5, 33), "int32")
            most = T.alloc_fragment((4, 33), "int32")
            T.copy(A, S)
            T.cumsum(S, dim=dim, reverse=reverse)
            T.reduce_max(S, most, dim=1)
            T.copy(S, O)
            T.copy(most, M)

    a = ints(4, 5, 33)
    want = (a.flip(dim).cumsum(dim).flip(dim) if reverse else a.cumsum(dim)).to(torch.int32)
    return run(main, a, out(want), out(want.max(1).values))


@program(copies=(1, 4))
def fragments_with_replicas(copies):
    """Every element of a fragment lies in several warps, as a formula says; it is changed, reduced and stored once."""

    def place(i, j, copy):
        return (i % 8) * 4 + j // 4 + copy * 32, j % 4

    forward = place if copies > 1 else lambda i, j: place(i, j, 0)

    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), O: T.Tensor((8, 16), "float32"), R: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32 * copies):
            f = T.alloc_fragment((8, 16), "float32")
            r = T.alloc_fragment((8,), "float32")
            T.annotate_layout({f: T.Fragment((8, 16), forward_fn=forward, replicate=copies)})
            T.copy(A, f)
            for i, j in T.Parallel(8, 16):
                f[i, j] = f[i, j] * 3
            T.reduce_sum(f, r, dim=1)
            for i, j in T.Parallel(8, 16):
                f[i, j] += r[i]
            T.copy(f, O)
            T.copy(r, R)

    a = ints(8, 16).float() * 3
    return run(main, a / 3, out(a + a.sum(1, keepdim=True)), out(a.sum(1)))


# -- launches


@program(n=(1, 19))
def launches_of_other_blocks_with_the_same_names(n):
    """Three launches of 33, 257 and 160 threads call their tiles alike; a workspace connects them."""
    rows = T.dynamic("rows")

    @T.prim_func
    def main(A: T.Tensor((rows, 16), "float32"), O: T.Tensor((16,), "float32"), P: T.Tensor((rows,), "float32")):
        W = T.alloc_global((rows, 16), "float32")
        with T.Kernel(rows, threads=33) as b:
            S = T.alloc_shared((16,), "float32")
            T.copy(A[b, 0:16], S)
            for i in T.Parallel(16):
                W[b, 15 - i] = S[i] + b
        with T.Kernel(1, threads=257):
            S = T.alloc_fragment((16,), "float32")
            T.clear(S)
            for r in range(rows):
                for i in T.Parallel(16):
                    S[i] += W[r, i]
            T.copy(S, O)
        with T.Kernel(T.ceildiv(rows, 8), threads=160) as b:
            S = T.alloc_shared((8, 16), "float32")
            m = T.alloc_fragment((8,), "float32")
            T.copy(W[b * 8, 0], S)
            T.reduce_max(S, m, dim=1)
            T.copy(m, P[b * 8])

    a = ints(n, 16).float()
    w = (a + torch.arange(n).view(-1, 1)).flip(1)
    return run(main, a, out(w.sum(0)), out(w.max(1).values))


@tilelang.jit
def _centred(A, scale: T.float32, threads: int = 96):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    sums = T.alloc_global((M,), "float32")
    O = T.empty((M, N), "float32")
    R = T.empty((M,), "float32")
    with T.Kernel(M, threads=threads) as b:
        f = T.alloc_fragment((N,), "float32")
        s = T.alloc_fragment((1,), "float32")
        T.copy(A[b, 0:N], f)
        T.reduce_sum(f, s, dim=0)
        sums[b] = s[0] * scale
    with T.Kernel(T.ceildiv(N, 33), M, threads=33) as (bx, by):
        for j in T.Parallel(33):
            if bx * 33 + j < N:
                O[by, bx * 33 + j] = A[by, bx * 33 + j] - sums[by]
        if bx == 0:
            R[by] = sums[by]
    return O, R


@program(shape=((5, 100), (1, 1)))
def eager_launches_with_a_workspace(shape):
    """An eager function of two launches, with memory between them and a number of the call."""
    a = ints(*shape).float()
    half = a.sum(1, keepdim=True) * 0.5
    return run(_centred, a, 0.5, returns=(a - half, half[:, 0]))


@tilelang.jit
def _sum_of_two_orders(A, B):
    M, N, S = T.const("M, N, S")
    A: T.StridedTensor((M, N), (S, 1), "float16")
    B: T.StridedTensor((N, M), (1, N), "float16")
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, 16), threads=96) as b:
        X = T.alloc_shared((16, N), "float16")
        y = T.alloc_fragment((16, N), "float32")
        T.copy(A[b * 16, 0], X)
        for i, j in T.Parallel(16, N):
            y[i, j] = X[i, j]
            if b * 16 + i < M:
                y[i, j] += B[j, b * 16 + i]
        T.copy(y, C[b * 16, 0])
    return C


@program(size=((20, 24, 40), (16, 7, 9)))
def eager_constants_in_strides(size):
    """T.const stands in strides alone, and takes them from the tensors of the call."""
    M, N, S = size
    a, b = ints(M, S, dtype="float16")[:, :N], ints(M, N, dtype="float16").t()
    return run(_sum_of_two_orders, a, b, returns=a.float() + b.t().float())


@program(twice=(False, True))
def macros_that_count(twice):
    """A macro gives back a tile and a variable, and hands an element by reference on to another macro."""

    @T.macro
    def count(x, k: T.Ref):
        k = k + x

    @T.macro
    def load(A, row, k: T.Ref, again=False):
        f = T.alloc_fragment((24,), "int32")
        v = T.alloc_var("int32", 0)
        T.copy(A[row, 0:24], f)
        for i in T.Parallel(24):
            f[i] = f[i] * 3
        count(1, k)
        if again:
            count(1, k)
        v = k
        return f, v

    @T.prim_func
    def main(A: T.Tensor((4, 24), "int32"), O: T.Tensor((4, 24), "int32"), C: T.Tensor((4, 2), "int32")):
        with T.Kernel(2, threads=33) as b:
            k = T.alloc_local((2,), "int32")
            k[0] = 10
            k[1] = 20
            f, v = load(A, b, k[0], again=twice)
            T.copy(f, O[b, :])
            C[b, 0] = v
            g, w = load(A, b + 2, k[1])
            for i in T.Parallel(24):
                g[i] += f[i]
            T.copy(g, O[b + 2, :])
            C[b, 1] = w
            C[b + 2, 0] = k[0]
            C[b + 2, 1] = k[1]

    a = ints(4, 24)
    want = a * 3
    want[2:] += want[:2]
    return run(main, a, out(want), out(torch.tensor([[11 + twice, 21]] * 4, dtype=torch.int32)))
