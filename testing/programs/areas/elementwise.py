# SPDX-License-Identifier: Apache-2.0
"""Parallel loops and fragments: any width, any number of threads, visited in part, kept across loops."""

from __future__ import annotations

import torch
from witness import changed, ints, out, program, randn, refused, run

import tilelang.language as T


@program(N=(1, 7, 127, 130, 257), threads=(96, 128))
def fragment_of_any_width(N, threads):
    """The width of a fragment and the number of threads need not divide each other."""

    @T.prim_func
    def main(X: T.Tensor((3, N), "float32"), Y: T.Tensor((3, N), "float32")):
        with T.Kernel(3, threads=threads) as b:
            f = T.alloc_fragment((N,), "float32")
            for j in T.Parallel(N):
                f[j] = X[b, j]
            for j in T.Parallel(N):
                f[j] = f[j] * 2.0 + 1.0
            for j in T.Parallel(N):
                Y[b, j] = f[j]

    x = randn(3, N)
    return run(main, x, out(x * 2 + 1))


@program(dtype=("int8", "float16", "bfloat16", "float64", "int64"), shape=((5, 3), (33, 20)))
def odd_tile_of_each_type(dtype, shape):
    """Vector widths follow the type; rows of an odd width break every one of them."""
    M, N = shape

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((M, N), dtype)
            T.copy(X, f)
            for i, j in T.Parallel(M, N):
                f[i, j] = f[i, j] + f[i, j]
            T.copy(f, Y)

    x = ints(M, N, dtype=dtype)
    return run(main, x, out(x + x))


@program(threads=(1, 5, 32, 200, 1024))
def few_and_many_threads(threads):
    """A tile smaller than the block, and a block of a single thread."""

    @T.prim_func
    def main(X: T.Tensor((6, 10), "float32"), Y: T.Tensor((10, 6), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((6, 10), "float32")
            T.copy(X, S)
            for j, i in T.Parallel(10, 6):
                Y[j, i] = S[i, j]

    x = randn(6, 10)
    return run(main, x, out(x.t()))


@program(part=((0, 5), (3, 8), (15, 1)))
def rows_of_a_fragment(part):
    """A loop over some rows of a fragment leaves the others as they are."""
    first, count = part

    @T.prim_func
    def main(A: T.Tensor((count, 64), "float32"), O: T.Tensor((16, 64), "float32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((16, 64), "float32")
            T.fill(f, 1.0)
            for i, j in T.Parallel(count, 64):
                f[i + first, j] = A[i, j]
            T.copy(f, O)

    a = randn(count, 64)
    want = torch.ones(16, 64)
    want[first : first + count] = a
    return run(main, a, out(want))


@program(dtype=("float32", "float16", "int8"))
def columns_of_a_fragment(dtype):
    """A loop over a window of columns that starts off every vector boundary."""

    @T.prim_func
    def main(A: T.Tensor((8, 48), dtype), O: T.Tensor((8, 48), dtype)):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((8, 48), dtype)
            T.copy(A, f)
            for i, j in T.Parallel(8, 19):
                f[i, j + 5] = f[i, j + 5] * 3
            T.copy(f, O)

    a = ints(8, 48, dtype=dtype)
    want = a.clone()
    want[:, 5:24] *= 3
    return run(main, a, out(want))


@program()
def half_of_one_is_half_of_another():
    """Two loops visit overlapping parts of the same fragment with different offsets."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((64,), "float32")
            g = T.alloc_fragment((48,), "float32")
            T.copy(A, f)
            for i in T.Parallel(48):
                g[i] = f[i]
            for i in T.Parallel(48):
                f[i + 16] = f[i + 16] + g[i]
            T.copy(f, O)

    a = randn(64)
    want = a.clone()
    want[16:] += a[:48]
    return run(main, a, out(want))


@program(trips=(0, 1, 4))
def fragment_in_a_serial_loop(trips):
    """A fragment carried through a serial loop and read after it, also where the loop runs never."""

    @T.prim_func
    def main(A: T.Tensor((5, 70), "float32"), O: T.Tensor((70,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((70,), "float32")
            T.fill(f, 0.5)
            for k in T.serial(trips):
                for i in T.Parallel(70):
                    f[i] = f[i] + A[k, i]
            for i in T.Parallel(70):
                O[i] = f[i]

    a = randn(5, 70)
    return run(main, a, out(0.5 + a[:trips].sum(0), rtol=1e-5, atol=1e-5))


@program()
def one_row_for_each_step():
    """A serial loop whose index is the row of a fragment: that row's threads must be the ones that act."""

    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32"), O: T.Tensor((8, 32), "float32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((8, 32), "float32")
            T.fill(f, -1.0)
            for i in T.serial(7):
                for j in T.Parallel(32):
                    f[i, j] = A[i, j] * (i + 1)
            T.copy(f, O)

    a = randn(8, 32)
    want = a * torch.arange(1, 9).view(8, 1)
    want[7] = -1
    return run(main, a, out(want))


@program()
def one_row_that_memory_names():
    """The row of a fragment comes out of memory: the other rows keep what they hold."""

    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32"), R: T.Tensor((2,), "int32"), O: T.Tensor((8, 32), "float32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((8, 32), "float32")
            T.copy(A, f)
            for k in T.serial(2):
                for j in T.Parallel(32):
                    f[R[k], j] = f[R[k], j] * 10.0
            T.copy(f, O)

    a = randn(8, 32)
    want = a.clone()
    want[[5, 2]] *= 10
    return run(main, a, torch.tensor([5, 2], dtype=torch.int32), out(want))


@program()
def read_transposed():
    """Two uses of one fragment that want different layouts."""

    @T.prim_func
    def main(A: T.Tensor((32, 48), "float32"), P: T.Tensor((32, 48), "float32"), Q: T.Tensor((48, 32), "float32")):
        with T.Kernel(1, threads=96):
            f = T.alloc_fragment((32, 48), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(32, 48):
                P[i, j] = f[i, j] + 1.0
            for j, i in T.Parallel(48, 32):
                Q[j, i] = f[i, j] - 1.0

    a = randn(32, 48)
    return run(main, a, out(a + 1), out(a.t() - 1))


@program(reverse=(False, True))
def elements_that_change_hands(reverse):
    """A fragment is read at an index that another thread owns."""

    @T.prim_func
    def main(A: T.Tensor((96,), "int32"), O: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((96,), "int32")
            g = T.alloc_fragment((96,), "int32")
            T.copy(A, f)
            for i in T.Parallel(96):
                g[i] = f[95 - i] if reverse else f[(i + 5) % 96]
            for i in T.Parallel(96):
                O[i] = f[i] * 1000 + g[i]

    a = torch.arange(96, dtype=torch.int32)
    return run(main, a, out(a * 1000 + (a.flip(0) if reverse else a.roll(-5))))


@program(K=(5, 12, 31))
def table_behind_a_remainder(K):
    """An index with a remainder or quotient inside a flattened loop."""

    @T.prim_func
    def main(A: T.Tensor((16, 48), "float32"), B: T.Tensor((K,), "float32"), Y: T.Tensor((16, 48), "float32")):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(16, 48):
                Y[i, j] = A[i, j] + B[j % K] * B[(i * 3 + j // 7) % K]

    a, b = randn(16, 48), randn(K)
    i, j = torch.arange(16).view(-1, 1), torch.arange(48)
    return run(main, a, b, out(a + b[j % K] * b[(i * 3 + j // 7) % K], rtol=1e-5, atol=1e-6))


@program(dtype=("float32", "float16"))
def gather_and_scatter(dtype):
    """Indices out of memory, on the reading and on the writing side."""

    @T.prim_func
    def main(A: T.Tensor((40, 24), dtype), R: T.Tensor((40,), "int32"), O: T.Tensor((40, 24), dtype)):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((40, 24), dtype)
            for i, j in T.Parallel(40, 24):
                S[i, j] = A[R[i], j]
            for i, j in T.Parallel(40, 24):
                O[R[39 - i], j] = S[i, j]

    a, r = randn(40, 24, dtype=dtype), torch.randperm(40).int()
    want = torch.empty_like(a)
    want[r.flip(0).long()] = a[r.long()]
    return run(main, a, r, out(want))


@program()
def constants_alone():
    """Fragments that are given constants and nothing else have some legal layout."""

    @T.prim_func
    def main(O: T.Tensor((33, 5), "float32"), C: T.Tensor((33,), "int32"), B: T.Tensor((3,), "bool")):
        with T.Kernel(1, threads=128):
            unused = T.alloc_fragment((33,), "float32")
            o = T.alloc_fragment((33, 5), "float32")
            c = T.alloc_fragment((33,), "int32")
            b = T.alloc_fragment((3,), "bool")
            T.fill(unused, -T.infinity("float32"))
            T.fill(o, 2.5)
            T.clear(c)
            T.fill(b, True)
            for _ in T.serial(3):
                for i in T.Parallel(33):
                    c[i] += 1
            T.copy(o, O)
            T.copy(c, C)
            T.copy(b, B)

    return run(main, out(torch.full((33, 5), 2.5)), out(torch.full((33,), 3).int()), out(torch.ones(3).bool()))


@program()
def fragments_of_one_and_of_four_dimensions():
    """A fragment of rank four beside one of a single element."""

    @T.prim_func
    def main(A: T.Tensor((2, 3, 4, 5), "float32"), s: T.Tensor((1,), "float32"), O: T.Tensor((5, 4, 3, 2), "float32")):
        with T.Kernel(1, threads=48):
            f = T.alloc_fragment((2, 3, 4, 5), "float32")
            one = T.alloc_fragment((1,), "float32")
            T.copy(A, f)
            T.copy(s, one)
            for a, b, c, d in T.Parallel(2, 3, 4, 5):
                f[a, b, c, d] = f[a, b, c, d] * one[0]
            for d, c, b, a in T.Parallel(5, 4, 3, 2):
                O[d, c, b, a] = f[a, b, c, d]

    a, s = randn(2, 3, 4, 5), randn(1)
    return run(main, a, s, out((a * s).permute(3, 2, 1, 0)))


@program()
def one_value_for_the_whole_block():
    """An element of a fragment that is stored outside a parallel loop is known to every thread."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            scale = T.alloc_fragment((2,), "float32")
            scale[0] = A[3] * 2.0
            scale[1] = scale[0] + 1.0
            for i in T.Parallel(64):
                O[i] = A[i] * scale[0] + scale[1]

    a = randn(64)
    return run(main, a, out(a * (a[3] * 2) + (a[3] * 2 + 1), rtol=1e-5, atol=1e-5))


@program()
def condition_on_the_index_and_on_data():
    """Branches inside a parallel loop, by position, by value, one inside the other."""

    @T.prim_func
    def main(A: T.Tensor((8, 40), "float32"), O: T.Tensor((8, 40), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((8, 40), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(8, 40):
                if j > i:
                    if f[i, j] > 0:
                        f[i, j] = f[i, j] * 2.0
                    else:
                        f[i, j] = 0.0
                elif j == i:
                    f[i, j] = 7.0
            T.copy(f, O)

    a = randn(8, 40)
    i, j = torch.arange(8).view(-1, 1), torch.arange(40)
    want = torch.where(j > i, torch.where(a > 0, a * 2, torch.zeros(())), torch.where(j == i, torch.tensor(7.0), a))
    return run(main, a, out(want))


@program()
def serial_loop_inside_a_parallel_one():
    """Each element sums a window of its own, whose length depends on where it is."""

    @T.prim_func
    def main(A: T.Tensor((50,), "int32"), O: T.Tensor((50,), "int32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((50,), "int32")
            T.copy(A, S)
            for i in T.Parallel(50):
                O[i] = 0
                for k in T.serial(i // 2, i + 1):
                    O[i] += S[k]

    a = ints(50)
    want = torch.stack([a[i // 2 : i + 1].sum() for i in range(50)]).int()
    return run(main, a, out(want))


@program(threads=(64, 96))
def swap_of_two_tiles(threads):
    """Two tiles exchange their values, elementwise and as names."""

    @T.prim_func
    def main(A: T.Tensor((70,), "float32"), B: T.Tensor((70,), "float32")):
        with T.Kernel(1, threads=threads):
            f = T.alloc_fragment((70,), "float32")
            g = T.alloc_fragment((70,), "float32")
            T.copy(A, f)
            T.copy(B, g)
            for i in T.Parallel(70):
                f[i], g[i] = g[i], f[i]
            T.copy(f, A)
            T.copy(g, B)

    a, b = randn(70), randn(70)
    return run(main, changed(a, b), changed(b, a))


@program(width=(1, 2, 4))
def asked_for_coalescing(width):
    """`coalesced_width` chooses how many neighbours a thread takes, never what is computed."""

    @T.prim_func
    def main(A: T.Tensor((16, 96), "float16"), O: T.Tensor((16, 96), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 96), "float16")
            T.copy(A, S, coalesced_width=width)
            for i, j in T.Parallel(16, 96, coalesced_width=width):
                O[i, j] = S[i, j] + T.float16(1)

    a = ints(16, 96, dtype="float16")
    return run(main, a, out(a + 1))


@program()
def nested_parallel_is_refused():
    """A parallel loop inside a parallel loop has no meaning."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(1, threads=64):
                for i in T.Parallel(8):
                    for j in T.Parallel(8):
                        A[i, j] = 1.0

        return main

    return refused(make, "Parallel")


@program()
def tile_statement_in_a_parallel_loop_is_refused():
    """A copy of a tile belongs to the whole block, not to one element."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(1, threads=64):
                S = T.alloc_shared((8, 8), "float32")
                for i in T.Parallel(8):
                    T.copy(A, S)

        return main

    return refused(make, "Parallel")


@program(size=((5, 70, 33), (3, 200, 100), (4, 3, 1), (3, 64, 2)))
def extents_of_the_run(size):
    """T.Parallel over sizes of tensors and over a number: a tile bounds it, or nothing does."""
    M, N, count = size
    m, n = T.dynamic("m, n")

    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32"), C: T.Tensor((m, 2), "float32"), k: T.int32
    ):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((100,), "float32")
            s = T.alloc_shared((40,), "float32")
            for i, j in T.Parallel(m, n):
                B[i, j] = A[i, j] * 2
            for i, j in T.Parallel(m, 2):
                C[i, j] = A[i, j]
            T.sync_threads()  # rows of B are written again, by other threads
            T.fill(f, 0)
            for i in T.Parallel(k):
                f[i] = A[0, i]
            for i in T.Parallel(T.min(32, k)):
                s[i] = f[i] + 1
            for i in T.Parallel(k - 1):
                B[1, i] = f[i]
            for i in T.Parallel(T.min(32, k)):
                B[2, i] = s[i]
            T.copy(A[0, 1:k], B[0, 1:k])

    a = randn(M, N)
    want = a * 2
    want[1, : count - 1] = a[0, : count - 1]
    want[2, : min(32, count)] = a[0, : min(32, count)] + 1
    want[0, 1:count] = a[0, 1:count]
    return run(main, a, out(want), out(a[:, :2].contiguous()), count)
