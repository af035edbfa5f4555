# SPDX-License-Identifier: Apache-2.0
"""Tiles whose uses pull in different directions: layouts, shared bytes, pipelines, branches, all at once."""

from __future__ import annotations

from functools import partial

import torch
from witness import EVERYWHERE, ON_DEVICES, changed, ints, out, program, randn, refused, run

import tilelang.language as T

program = partial(program, devices=EVERYWHERE)


@program(stages=(0, 2), dtype=("float16", "bfloat16"))
def operand_read_by_rows_and_by_columns(stages, dtype):
    """A pipelined tile feeds a product, a reduction over rows and a transposed read."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 96), dtype), B: T.Tensor((96, 32), dtype), C: T.Tensor((64, 32), "float32"),
        R: T.Tensor((64,), "float32"), X: T.Tensor((96, 64), dtype),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), dtype)
            Bs = T.alloc_shared((32, 32), dtype)
            f = T.alloc_fragment((64, 32), "float32")
            r = T.alloc_fragment((64,), "float32")
            acc = T.alloc_fragment((64, 32), "float32")
            T.clear(acc)
            T.clear(r)
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
                T.copy(As, f)
                T.reduce_sum(f, r, dim=1, clear=False)
                for j, i in T.Parallel(32, 64):
                    X[k * 32 + j, i] = As[i, j]
            T.copy(acc, C)
            T.copy(r, R)

    a, b = ints(64, 96, dtype=dtype), ints(96, 32, dtype=dtype)
    return run(main, a, b, out(a.float() @ b.float()), out(a.float().sum(1)), out(a.t()))


@program(threads=(64, 96, 128))
def fragments_of_two_layouts_in_one_loop(threads):
    """Two fragments meet elementwise, of which one was reduced along rows and one along columns."""

    @T.prim_func
    def main(A: T.Tensor((20, 28), "float32"), B: T.Tensor((28, 20), "float32"), O: T.Tensor((20, 28), "float32")):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((20, 28), "float32")
            b = T.alloc_fragment((28, 20), "float32")
            row = T.alloc_fragment((20,), "float32")
            col = T.alloc_fragment((28,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.reduce_max(a, row, dim=1)
            T.reduce_max(b, col, dim=1)
            for i, j in T.Parallel(20, 28):
                a[i, j] = (a[i, j] - row[i]) * (b[j, i] - col[j])
            T.copy(a, O)

    a, b = ints(20, 28).float(), ints(28, 20).float()
    want = (a - a.amax(1, keepdim=True)) * (b - b.amax(1, keepdim=True)).t()
    return run(main, a, b, out(want))


@program()
def row_vector_and_column_vector():
    """One vector is used along both dimensions of a tile."""

    @T.prim_func
    def main(V: T.Tensor((24,), "float32"), O: T.Tensor((24, 24), "float32"), S: T.Tensor((24,), "float32")):
        with T.Kernel(1, threads=96):
            v = T.alloc_fragment((24,), "float32")
            s = T.alloc_fragment((24,), "float32")
            o = T.alloc_fragment((24, 24), "float32")
            T.copy(V, v)
            for i, j in T.Parallel(24, 24):
                o[i, j] = v[i] * 10.0 + v[j]
            T.reduce_sum(o, s, dim=0)
            for i, j in T.Parallel(24, 24):
                o[i, j] = o[i, j] + s[i] - s[j]
            T.copy(o, O)
            T.copy(s, S)

    v = ints(24).float()
    o = v.view(-1, 1) * 10 + v
    return run(main, v, out(o + o.sum(0).view(-1, 1) - o.sum(0)), out(o.sum(0)))


@program(trips=(0, 1, 3), stages=(1, 2))
def accumulator_outlives_the_loop(trips, stages):
    """What a pipeline leaves in fragments and shared tiles is read behind it, also when it ran never."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 64, 32), "float16"),
        C: T.Tensor((64, 64), "float32"),
        L: T.Tensor((64, 32), "float16"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.fill(acc, 0.25)
            T.fill(As, 1.0)
            for k in T.Pipelined(n, num_stages=stages):
                T.copy(A[k, :, :], As)
                T.gemm(As, As, acc, transpose_B=True)
            T.copy(As, L)
            for i, j in T.Parallel(64, 64):
                C[j, i] = acc[i, j] * 2.0

    a = ints(3, 64, 32, dtype="float16")
    product = sum((a[k].float() @ a[k].float().t() for k in range(trips)), torch.zeros(64, 64))
    last = a[trips - 1] if trips else torch.ones(64, 32).half()
    return run(main, a, out((product + 0.25).t() * 2), out(last), trips)


@program(stages=(0, 2))
def fragment_partly_visited_in_a_pipeline(stages):
    """A loop inside a pipeline updates a growing part of a fragment that another loop reads whole."""

    @T.prim_func
    def main(A: T.Tensor((4, 8, 24), "float32"), O: T.Tensor((32, 24), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8, 24), "float32")
            f = T.alloc_fragment((32, 24), "float32")
            T.fill(f, -1.0)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[k, :, :], S)
                for i, j in T.Parallel(32, 24):
                    if i // 8 == k:
                        f[i, j] = S[i % 8, 23 - j]
                    elif i // 8 < k:
                        f[i, j] = f[i, j] + 1.0
            T.copy(f, O)

    a = ints(4, 8, 24).float()
    want = a.flip(2) + (3 - torch.arange(4)).view(4, 1, 1)
    return run(main, a, out(want.reshape(32, 24)))


@program(conditional=("uniform", "block", "data"))
def tile_statements_in_branches(conditional):
    """Whole tile statements stand in branches that all threads of a block take alike."""

    @T.prim_func
    def main(A: T.Tensor((2, 16, 40), "float32"), F: T.Tensor((2,), "int32"), O: T.Tensor((2, 16, 40), "float32")):
        with T.Kernel(2, threads=96) as b:
            S = T.alloc_shared((16, 40), "float32")
            f = T.alloc_fragment((16, 40), "float32")
            s = T.alloc_fragment((16,), "float32")
            T.clear(f)
            if (F[0] if conditional == "uniform" else b if conditional == "block" else F[b]) != 0:
                T.copy(A[b, :, :], S)
                for i, j in T.Parallel(16, 40):
                    f[i, j] = S[i, 39 - j]
                T.reduce_max(f, s, dim=1)
            else:
                T.copy(A[b, :, :], f)
                T.reduce_min(f, s, dim=1)
            for i, j in T.Parallel(16, 40):
                O[b, i, j] = f[i, j] - s[i]

    a, f = ints(2, 16, 40).float(), torch.tensor([0, 1]).int()
    one = lambda x, yes: x.flip(1) - x.amax(1, keepdim=True) if yes else x - x.amin(1, keepdim=True)
    taken = {"uniform": (False, False), "block": (False, True), "data": (False, True)}[conditional]
    return run(main, a, f, out(torch.stack([one(a[k], taken[k]) for k in (0, 1)])))


@program(order=("first", "last"))
def tiles_that_share_bytes(order):
    """Tiles of different types and sizes live one after the other, and one through all of it."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        V: T.Tensor((4096,), "float32"),
        O: T.Tensor((64, 64), "float32"),
        P: T.Tensor((4096,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            keep = T.alloc_shared((64,), "float32")
            small = T.alloc_shared((64, 64), "float16")
            large = T.alloc_shared((4096,), "float32")
            acc = T.alloc_fragment((64, 64), "float32")
            for i in T.Parallel(64):
                keep[i] = V[i]
            for step in range(2):
                if (step == 0) == (order == "first"):
                    T.copy(A, small)
                    T.gemm(small, small, acc, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(64, 64):
                        O[i, j] = acc[i, j] + keep[j]
                else:
                    T.copy(V, large)
                    for i in T.Parallel(4096):
                        P[i] = large[4095 - i] + keep[i % 64]

    a, v = ints(64, 64, dtype="float16"), ints(4096).float()
    return run(main, a, v, out(a.float() @ a.float().t() + v[:64]), out(v.flip(0) + v[:64].repeat(64)))


@program(width=(5, 33, 64))
def neighbours_in_a_row(width):
    """A stencil in place: every thread reads its neighbours before anyone writes."""

    @T.prim_func
    def main(A: T.Tensor((width,), "int32"), O: T.Tensor((width,), "int32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((width + 2,), "int32")
            f = T.alloc_fragment((width,), "int32")
            T.clear(S)
            for i in T.Parallel(width):
                S[i + 1] = A[i]
            for _ in T.serial(3):
                for i in T.Parallel(width):
                    f[i] = S[i] + S[i + 1] * 2 + S[i + 2]
                for i in T.Parallel(width):
                    S[i + 1] = f[i]
            for i in T.Parallel(width):
                O[i] = S[i + 1]

    a = ints(width)
    x = a.long()
    for _ in range(3):
        p = torch.nn.functional.pad(x, (1, 1))
        x = p[:-2] + p[1:-1] * 2 + p[2:]
    return run(main, a, out(x.int()))


@program(devices=("cpu", *ON_DEVICES))
def same_element_from_many_iterations_is_one_of_them():
    """Several iterations that store one element: the result is one of what they store (here they agree)."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8,), "int32")
            for i in T.Parallel(64):
                S[i % 8] = A[i % 8] * 3
            T.copy(S, O)

    a = ints(64)
    return run(main, a, out(a[:8] * 3))


@program(n=(3, 40), threads=(32, 96))
def copies_of_global_to_global(n, threads):
    """Both sides of a copy may be tensors, also of different types and partly outside."""

    @T.prim_func
    def main(A: T.Tensor((n, 50), "float32"), B: T.Tensor((n, 50), "float16")):
        with T.Kernel(T.ceildiv(n, 16), threads=threads) as b:
            T.copy(A[b * 16 : (b + 1) * 16, :], B[b * 16 : (b + 1) * 16, :])

    a = randn(n, 50)
    return run(main, a, out(a.half()))


@program(dim=(0, 1))
def reduced_where_it_lies_transposed(dim):
    """An accumulator is reduced along both dimensions, scaled by the results and multiplied again."""

    @T.prim_func
    def main(A: T.Tensor((64, 32), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            half = T.alloc_fragment((64, 64), "float16")
            total = T.alloc_fragment((64,), "float32")
            Ps = T.alloc_shared((64, 64), "float16")
            T.copy(A, As)
            T.gemm(As, As, acc, transpose_B=True, clear_accum=True)
            T.reduce_sum(acc, total, dim=dim)
            for i, j in T.Parallel(64, 64):
                half[i, j] = T.cast(
                    T.if_then_else((total[j] if dim == 0 else total[i]) > 0, 1.0, -1.0)
                    * T.if_then_else(acc[i, j] > 0, 1.0, 0.0),
                    "float16",
                )
            T.copy(half, Ps)
            T.gemm(half, Ps, acc, clear_accum=True)
            T.copy(acc, O)

    a = ints(64, 32, dtype="float16")
    p = a.float() @ a.float().t()
    sign = torch.where(p.sum(dim) > 0, 1.0, -1.0)
    h = (sign.view(1, -1) if dim == 0 else sign.view(-1, 1)) * (p > 0)
    return run(main, a, out(h @ h))


@program(shape=((2, 3, 5), (1, 1, 1), (4, 16, 8)), threads=(32, 96))
def three_dimensions_every_way(shape, threads):
    """A tile of rank three is loaded, permuted, summed over its middle and stored with a reversed axis."""
    A_, B_, C_ = shape

    @T.prim_func
    def main(
        X: T.Tensor(shape, "float32"),
        P: T.Tensor((C_, A_, B_), "float32"),
        M: T.Tensor((A_, C_), "float32"),
        R: T.Tensor(shape, "float32"),
    ):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared(shape, "float32")
            f = T.alloc_fragment(shape, "float32")
            m = T.alloc_fragment((A_, C_), "float32")
            T.copy(X, S)
            T.copy(S, f)
            T.reduce_sum(f, m, dim=1)
            for k, i, j in T.Parallel(C_, A_, B_):
                P[k, i, j] = f[i, j, k] + m[i, k]
            for i, j, k in T.Parallel(A_, B_, C_):
                R[i, B_ - 1 - j, k] = S[i, j, k] * 2.0
            T.copy(m, M)

    x = ints(*shape).float()
    m = x.sum(1)
    return run(main, x, out((x + m[:, None]).permute(2, 0, 1)), out(m), out(x.flip(1) * 2))


@program(split=(2, 4))
def fragment_regrouped_by_arithmetic(split):
    """Indices with quotients and remainders regroup a fragment: pairs, interleaving, rotation of halves."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), O: T.Tensor((8, 64), "float32"), Q: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((8, 64), "float32")
            g = T.alloc_fragment((8, 64), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(8, 64):
                g[i, j] = f[i, (j % split) * (64 // split) + j // split]
            T.copy(g, O)
            for i, j in T.Parallel(8, 64):
                g[i, j] = T.if_then_else(j < 32, -f[i, (j + 32) % 64], f[i, (j + 32) % 64])
            T.copy(g, Q)

    a = randn(8, 64)
    j = torch.arange(64)
    rotated = torch.cat([-a[:, 32:], a[:, :32]], 1)
    return run(main, a, out(a[:, (j % split) * (64 // split) + j // split]), out(rotated))


@program(stages=(1, 2))
def two_accumulators_swap_roles(stages):
    """Even iterations add to one accumulator, odd ones to the other."""

    @T.prim_func
    def main(A: T.Tensor((64, 160), "float16"), C: T.Tensor((64, 64), "float32"), D: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.clear(d)
            for k in T.Pipelined(5, num_stages=stages):
                T.copy(A[0, k * 32], As)
                if k % 2 == 0:
                    T.gemm(As, As, c, transpose_B=True)
                else:
                    T.gemm(As, As, d, transpose_B=True)
            T.copy(c, C)
            T.copy(d, D)

    a = ints(64, 160, dtype="float16")
    part = lambda k: a[:, k * 32 : k * 32 + 32].float() @ a[:, k * 32 : k * 32 + 32].float().t()
    return run(main, a, out(part(0) + part(2) + part(4)), out(part(1) + part(3)))


@program(stages=(0, 2))
def scale_loaded_beside_the_tile(stages):
    """A small vector is loaded in each iteration next to the tiles, by a copy too short for the copy engine."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 96), "float16"),
        S: T.Tensor((3, 2), "float32"),
        B: T.Tensor((96, 32), "float16"),
        C: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            Ss = T.alloc_shared((2,), "float32", scope="shared")
            part = T.alloc_fragment((64, 32), "float32")
            acc = T.alloc_fragment((64, 32), "float32")
            T.clear(acc)
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.copy(S[k, :], Ss)
                T.gemm(As, Bs, part, clear_accum=True)
                for i, j in T.Parallel(64, 32):
                    acc[i, j] += part[i, j] * Ss[0] + Ss[1]
            T.copy(acc, C)

    a, s, b = ints(64, 96, dtype="float16"), ints(3, 2).float(), ints(96, 32, dtype="float16")
    part = lambda k: a[:, k * 32 : k * 32 + 32].float() @ b[k * 32 : k * 32 + 32].float()
    return run(main, a, s, b, out(sum(part(k) * s[k, 0] + s[k, 1] for k in range(3))))


@program()
def two_elements_in_one_place_are_refused():
    """A layout of shared memory must give every element an address of its own."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(1, threads=64):
                S = T.alloc_shared((8, 8), "float32")
                T.annotate_layout({S: T.Layout((8, 8), lambda i, j: j % 4)})
                T.copy(A, S)

        return main

    return refused(make, "own address")


@program(branch=("one thread", "warp", "warpgroup"), again=(False, True))
def store_in_flight_around_a_branch(branch, again):
    """A tile that a transfer still reads is not overwritten, nor does its block end, whatever branch comes between."""

    @T.prim_func
    def main(A: T.Tensor((3, 64, 64), "float16"), O: T.Tensor((3, 64, 64), "float16"), R: T.Tensor((3, 128), "int32")):
        with T.Kernel(1, threads=256):
            t = T.get_thread_binding()
            S = T.alloc_shared((64, 64), "float16")
            for k in T.serial(3 if again else 1):
                T.copy(A[k, :, :], S)
                T.copy(S, O[k, :, :])
                if branch == "one thread":
                    if t == 0:
                        for i in T.serial(128):
                            R[k, i] = i
                elif branch == "warp":
                    if t < 32:
                        for i in T.serial(4):
                            R[k, i * 32 + t] = i * 32 + t
                else:
                    with T.ws(1):
                        for i in T.Parallel(128):
                            R[k, i] = i

    a = randn(3, 64, 64, dtype="float16")
    n = 3 if again else 1
    o = torch.zeros_like(a)
    w = o.clone()
    w[:n] = a[:n]
    r = torch.zeros(3, 128).int()
    rw = r.clone()
    rw[:n] = torch.arange(128).int()
    return run(main, a, changed(o, w), changed(r, rw))


@program(stages=(0, 2))
def stored_tile_is_changed_by_one_thread(stages):
    """The end of a product is staged, stored where memory says so, and touched by one thread before the next one."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 64, 128), "float16"),
        B: T.Tensor((3, 128, 64), "float16"),
        M: T.Tensor((3,), "int32"),
        O: T.Tensor((3, 64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            Cs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            for e in T.serial(3):
                T.clear(acc)
                for k in T.Pipelined(4, num_stages=stages):
                    T.copy(A[e, 0, k * 32], As)
                    T.copy(B[e, k * 32, 0], Bs)
                    T.gemm(As, Bs, acc)
                T.copy(acc, Cs)
                if M[e] > 0:
                    T.copy(Cs, O[e, :, :])
                if T.get_thread_binding() == 7:
                    Cs[0, 0] = 0

    a, b = ints(3, 64, 128, low=-1, high=2, dtype="float16"), ints(3, 128, 64, low=-1, high=2, dtype="float16")
    want = (a.float() @ b.float()).half()
    want[1] = 0
    return run(main, a, b, torch.tensor([1, 0, 1]).int(), changed(torch.zeros(3, 64, 64).half(), want))


@program()
def bytes_of_a_stored_tile():
    """A tile takes over the bytes of one that a transfer still reads, behind a branch of one thread."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float32"),
        O: T.Tensor((64, 64), "float16"),
        P: T.Tensor((64, 64), "float32"),
        Q: T.Tensor((1,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            T.copy(A, S)
            T.copy(S, O)
            if T.get_thread_binding() == 0:
                Q[0] = 1.0
            U = T.alloc_shared((64, 64), "float32")
            for i, j in T.Parallel(64, 64):
                U[i, j] = B[i, j] + 1
            T.copy(U, P)

    a, b = randn(64, 64, dtype="float16"), randn(64, 64)
    return run(main, a, b, out(a), out(b + 1), out(torch.ones(1)))


@program(devices=ON_DEVICES, load=("copy", "asynchronous", "loop", "pipelined", "guarded"))
def barrier_of_the_program_behind_a_product(load):
    """T.gemm has ended where the program's own T.sync_threads stands: what any warpgroup read is overwritten then."""

    @T.prim_func
    def main(A: T.Tensor((128, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((128, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((128, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=3) if load == "pipelined" else T.serial(4):
                if load == "asynchronous":
                    T.async_copy(A[:, k * 32 : k * 32 + 32], As)
                    T.async_copy(B[k * 32 : k * 32 + 32, :], Bs)
                    T.ptx_wait_group(0)
                elif load == "loop":
                    for i, j in T.Parallel(128, 32):
                        As[i, j] = A[i, k * 32 + j]
                    for i, j in T.Parallel(32, 64):
                        Bs[i, j] = B[k * 32 + i, j]
                else:
                    T.copy(A[0, k * 32], As)
                    T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
                if load != "guarded" or k < 4:
                    T.sync_threads()
            T.copy(acc, C)

    a, b = ints(128, 128, dtype="float16"), ints(128, 64, dtype="float16")
    return run(main, a, b, out(a.float() @ b.float()))
