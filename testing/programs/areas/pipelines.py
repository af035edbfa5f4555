# SPDX-License-Identifier: Apache-2.0
"""T.Pipelined: any number of stages and trips, dependences across iterations, guards, what stands between copies."""

from __future__ import annotations

from functools import partial

import torch
from witness import EVERYWHERE, changed, ints, out, program, randn, refused, run

import tilelang.language as T

program = partial(program, devices=EVERYWHERE)


def dot(a, b):
    return a.float() @ b.float()


@program(trips=(0, 1, 2, 5), stages=(1, 3))
def any_number_of_trips(trips, stages):
    """A pipeline may run never, once, or fewer times than it has stages."""
    K = trips * 32

    @T.prim_func
    def main(
        A: T.Tensor((64, max(K, 32)), "float16"),
        B: T.Tensor((max(K, 32), 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(trips, num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a, b = ints(64, max(K, 32), dtype="float16"), ints(max(K, 32), 64, dtype="float16")
    return run(main, a, b, out(dot(a[:, :K], b[:K])))


@program(stages=(0, 2, 4))
def trips_known_at_run_time(stages):
    """The number of trips is an argument, a symbol or a value in memory; zero is allowed."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 64), "float32"), L: T.Tensor((3,), "int32"), O: T.Tensor((3, 64), "float32")):
        with T.Kernel(3, threads=64) as b:
            S = T.alloc_shared((8, 64), "float32")
            acc = T.alloc_fragment((64,), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(L[b], 8), num_stages=stages):
                T.copy(A[k * 8, 0], S)
                for j in T.Parallel(64):
                    for i in T.serial(8):
                        acc[j] += S[i, j]
            T.copy(acc, O[b, :])

    def one(rows, lengths):
        a = ints(rows, 64, dtype="float32")
        want = torch.stack([a[: (x + 7) // 8 * 8].sum(0) for x in lengths])
        return run(main, a, torch.tensor(lengths).int(), out(want))

    return [one(40, (40, 0, 1)), one(3, (3, 3, 0)), one(1, (0, 0, 0))]


@program(stages=(0, 1, 2, 3))
def refilled_after_it_was_read(stages):
    """A tile is read first and refilled for the next iteration afterwards: the old value is the one that counts."""

    @T.prim_func
    def main(A: T.Tensor((7, 96), "float32"), O: T.Tensor((96,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((96,), "float32")
            acc = T.alloc_fragment((96,), "float32")
            T.clear(acc)
            T.copy(A[0, 0:96], S)
            for k in T.Pipelined(6, num_stages=stages):
                for i in T.Parallel(96):
                    acc[i] += S[i] * (k + 1)
                T.copy(A[k + 1, 0:96], S)
            T.copy(acc, O)

    a = ints(7, 96, dtype="float32")
    return run(main, a, out((a[:6] * torch.arange(1, 7).view(6, 1)).sum(0)))


@program(stages=(0, 2, 3))
def one_iteration_needs_the_last(stages):
    """A recurrence through shared memory beside copies that run ahead."""

    @T.prim_func
    def main(A: T.Tensor((6, 64), "float32"), O: T.Tensor((6, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            H = T.alloc_shared((64,), "float32")
            T.clear(H)
            for k in T.Pipelined(6, num_stages=stages):
                T.copy(A[k, 0:64], S)
                for i in T.Parallel(64):
                    H[i] = H[i] * 2.0 + S[63 - i]
                T.copy(H, O[k, 0:64])

    a = ints(6, 64, dtype="float32")
    h, want = torch.zeros(64), []
    for k in range(6):
        h = h * 2 + a[k].flip(0)
        want.append(h)
    return run(main, a, out(torch.stack(want)))


@program(stages=(0, 2, 3))
def loads_what_it_stored(stages):
    """An iteration loads from global memory what an earlier one stored there."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(7, num_stages=stages):
                T.copy(A[k, 0:64], S)
                for i in T.Parallel(64):
                    A[k + 1, i] = A[k + 1, i] + S[63 - i]

    a = ints(8, 64, dtype="float32")
    want = a.clone()
    for k in range(7):
        want[k + 1] += want[k].flip(0)
    return run(main, changed(a, want))


@program(stages=(1, 2, 3), skipped=("block", "copy", "product"))
def guard_out_of_memory(stages, skipped):
    """The body, a copy or a product is skipped where a mask in memory says so."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 160), "float16"),
        B: T.Tensor((160, 64), "float16"),
        M: T.Tensor((5,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            T.clear(As)
            for k in T.Pipelined(5, num_stages=stages):
                if skipped == "block":
                    if M[k] != 0:
                        T.copy(A[0, k * 32], As)
                        T.copy(B[k * 32, 0], Bs)
                        T.gemm(As, Bs, acc)
                elif skipped == "copy":
                    if M[k] != 0:
                        T.copy(A[0, k * 32], As)
                    T.copy(B[k * 32, 0], Bs)
                    T.gemm(As, Bs, acc)
                else:
                    T.copy(A[0, k * 32], As)
                    T.copy(B[k * 32, 0], Bs)
                    if M[k] != 0:
                        T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a, b = ints(64, 160, dtype="float16"), ints(160, 64, dtype="float16")

    def one(*mask):
        want, tile = torch.zeros(64, 64), torch.zeros(64, 32)
        for k, m in enumerate(mask):
            here = slice(k * 32, k * 32 + 32)
            tile = a[:, here].float() if m or skipped == "product" else tile
            want += tile @ b[here].float() if m or skipped == "copy" else 0
        return run(main, a, b, torch.tensor(mask).int(), out(want))

    return [one(1, 0, 1, 1, 0), one(0, 0, 0, 0, 0), one(1, 1, 1, 1, 1), one(0, 0, 0, 0, 1)]


@program(stages=(0, 2, 3))
def rows_named_by_memory(stages):
    """Where the next tile lies is read from memory inside the pipeline: a table of pages."""

    @T.prim_func
    def main(A: T.Tensor((9, 16, 64), "float16"), P: T.Tensor((2, 4), "int32"), O: T.Tensor((2, 64), "float32")):
        with T.Kernel(2, threads=64) as b:
            S = T.alloc_shared((16, 64), "float16")
            f = T.alloc_fragment((16, 64), "float32")
            s = T.alloc_fragment((64,), "float32")
            T.clear(s)
            for k in T.Pipelined(4, num_stages=stages):
                page = P[b, k]
                T.copy(A[page, :, :], S)
                T.copy(S, f)
                T.reduce_sum(f, s, dim=0, clear=False)
            T.copy(s, O[b, :])

    a, p = ints(9, 16, 64, dtype="float16"), torch.randint(0, 9, (2, 4), dtype=torch.int32)
    return run(main, a, p, out(a.float().sum(1)[p.long()].sum(1)))


@program(depths=((2, 2), (2, 3), (3, 1), (1, 4)))
def two_loops_share_their_tiles(depths):
    """Two pipelines of different depths use the same shared tiles one after the other."""

    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=depths[0]):
                T.copy(A[0, k * 32], As)
                T.copy(B[0, k * 32], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            for k in T.Pipelined(3, num_stages=depths[1]):
                T.copy(B[0, k * 32], As)
                T.copy(A[0, k * 32], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C)

    a, b = ints(64, 128, dtype="float16"), ints(64, 128, dtype="float16")
    return run(main, a, b, out(dot(a, b.t()) + dot(b[:, :96], a[:, :96].t())))


@program(stages=(0, 1, 2))
def pipeline_in_a_serial_loop(stages):
    """A pipeline is entered several times, with tiles that live on."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 96), "float16"), B: T.Tensor((3, 96, 32), "float16"), C: T.Tensor((3, 64, 32), "float32")
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            for n in T.serial(3):
                T.clear(acc)
                for k in T.Pipelined(3, num_stages=stages):
                    T.copy(A[0, k * 32], As)
                    T.copy(B[n, k * 32, 0], Bs)
                    T.gemm(As, Bs, acc)
                T.copy(acc, C[n, :, :])

    a, b = ints(64, 96, dtype="float16"), ints(3, 96, 32, dtype="float16")
    return run(main, a, b, out(dot(a, b)))


@program(stages=(1, 2, 3))
def loop_inside_a_pipeline(stages):
    """Between the copies of a pipeline stands a serial loop with products on slices of the tile."""

    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=stages):
                T.copy(A[0, k * 64], As)
                T.copy(B[k * 64, 0], Bs)
                for part in T.serial(2):
                    T.gemm(As[:, part * 32 : part * 32 + 32], Bs[part * 32 : part * 32 + 32, :], acc)
            T.copy(acc, C)

    a, b = ints(64, 128, dtype="float16"), ints(128, 64, dtype="float16")
    return run(main, a, b, out(dot(a, b)))


@program(stages=(0, 2, 3), by=("copy", "loop"))
def changed_between_copy_and_product(stages, by):
    """A loaded tile is converted or scaled in place before the product reads it."""

    @T.prim_func
    def main(A: T.Tensor((64, 96), "float16"), B: T.Tensor((96, 64), "int8"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            B8 = T.alloc_shared((32, 64), "int8")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], B8)
                if by == "copy":
                    T.copy(B8, Bs)
                else:
                    for i, j in T.Parallel(32, 64):
                        Bs[i, j] = T.cast(B8[i, j], "float16")
                    for i, j in T.Parallel(64, 32):
                        As[i, j] = As[i, j] * T.float16(2)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a, b = ints(64, 96, dtype="float16"), ints(96, 64, dtype="int8")
    return run(main, a, b, out(dot(a, b) * (1 if by == "copy" else 2)))


@program(stages=(0, 2))
def two_products_share_a_tile(stages):
    """One tile feeds two products; the next iteration overwrites it."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((2, 128, 32), "float16"),
        C: T.Tensor((64, 32), "float32"),
        D: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((64, 32), "float32")
            d = T.alloc_fragment((64, 32), "float32")
            T.clear(c)
            T.clear(d)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.copy(B[0, k * 32, 0], Bs)
                T.gemm(As, Bs, c)
                T.copy(B[1, k * 32, 0], Bs)
                T.gemm(As, Bs, d)
            T.copy(c, C)
            T.copy(d, D)

    a, b = ints(64, 128, dtype="float16"), ints(2, 128, 32, dtype="float16")
    return run(main, a, b, out(dot(a, b[0])), out(dot(a, b[1])))


@program(stages=(0, 2, 3))
def odd_first_and_last_tiles(stages):
    """A pipeline from a start that is no zero, over tiles that leave the tensor."""

    @T.prim_func
    def main(A: T.Tensor((50, 150), "float16"), B: T.Tensor((150, 40), "float16"), C: T.Tensor((50, 40), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(1, T.ceildiv(150, 32), num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[0, 0])

    a, b = ints(50, 150, dtype="float16"), ints(150, 40, dtype="float16")
    return run(main, a, b, out(dot(a[:, 32:], b[32:])))


@program(stages=(0, 2))
def stores_from_inside(stages):
    """A pipeline that loads, computes and stores a tile each time, without a product."""

    @T.prim_func
    def main(A: T.Tensor((5, 16, 40), "float32"), O: T.Tensor((5, 40, 16), "float32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((16, 40), "float32")
            D = T.alloc_shared((40, 16), "float32")
            for k in T.Pipelined(5, num_stages=stages):
                T.copy(A[k, :, :], S)
                for j, i in T.Parallel(40, 16):
                    D[j, i] = S[i, j] + 1.0
                T.copy(D, O[k, :, :])

    a = randn(5, 16, 40)
    return run(main, a, out(a.transpose(1, 2) + 1))


@program()
def leaving_a_pipeline_is_refused():
    """The iterations of a pipeline overlap: `break` has no place in it."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8, 64), "float32"), M: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=64):
                S = T.alloc_shared((64,), "float32")
                for k in T.Pipelined(8, num_stages=2):
                    if M[k] == 2:
                        break
                    T.copy(A[k, 0:64], S)

        return main

    return refused(make, "break", "T.serial")


@program(stages=(0, 2))
def one_tile_loaded_in_two_parts(stages):
    """The halves of a tile come from different tensors, by a copy and by a loop."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=stages):
                T.copy(A[0:32, k * 32 : k * 32 + 32], S[0:32, :])
                for i, j in T.Parallel(32, 32):
                    S[32 + i, j] = B[32 + i, k * 32 + j]
                T.gemm(S, S, acc, transpose_B=True)
            T.copy(acc, C)

    a, b = ints(64, 64, dtype="float16"), ints(64, 64, dtype="float16")
    s = torch.cat([a[:32], b[32:]])
    return run(main, a, b, out(dot(s, s.t())))


@program(order=((0, 1, 2), None))
def manual_order_and_stages(order):
    """`order` and `stage` lists choose a schedule, never a value."""
    extra = {"order": list(order), "stage": [0, 0, 1]} if order else {"num_stages": 2}

    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, **extra):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a, b = ints(64, 128, dtype="float16"), ints(128, 64, dtype="float16")
    return run(main, a, b, out(dot(a, b)))


@program(threads=(32, 64, 96, 192, 256))
def pipelines_of_any_block(threads):
    """Stages do not need warpgroups: blocks of any number of threads may ask for them."""

    @T.prim_func
    def main(A: T.Tensor((6, 32, 40), "float32"), O: T.Tensor((32, 40), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((32, 40), "float32")
            f = T.alloc_fragment((32, 40), "float32")
            T.clear(f)
            for k in T.Pipelined(6, num_stages=2):
                T.copy(A[k, :, :], S)
                for i, j in T.Parallel(32, 40):
                    f[i, j] += S[i, 39 - j]
            T.copy(f, O)

    a = ints(6, 32, 40, dtype="float32")
    return run(main, a, out(a.sum(0).flip(1)))


@program(stages=(2, 3))
def accumulator_read_in_every_iteration(stages):
    """The result of the product is used and cleared inside the pipeline: two-level accumulation."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        s: T.Tensor((4,), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            part = T.alloc_fragment((64, 64), "float32")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, part, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    acc[i, j] += part[i, j] * s[k]
            T.copy(acc, C)

    a, b, s = ints(64, 128, dtype="float16"), ints(128, 64, dtype="float16"), ints(4, dtype="float32")
    return run(main, a, b, s, out(dot(a * s.repeat_interleave(32).half(), b)))


@program(stages=(0, 2))
def cleared_in_the_first_iteration(stages):
    """`clear_accum` takes a condition."""

    @T.prim_func
    def main(A: T.Tensor((64, 96), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(A[0, k * 32], As)
                T.gemm(As, As, acc, transpose_B=True, clear_accum=k == 0)
            T.copy(acc, C)

    a = ints(64, 96, dtype="float16")
    return run(main, a, out(dot(a, a.t())))


@program(trips=(1, 5), stages=(1, 2, 3), stored=("at once", "sometimes", "in front of more work", "twice"))
def loaded_tiles_are_stored(trips, stages, stored):
    """The transfer that stores a loaded tile has read it before the tile is loaded again."""

    @T.prim_func
    def main(
        A: T.Tensor((trips, 64, 64), "float16"),
        B: T.Tensor((trips, 64, 64), "float16"),
        n: T.int32,
        O: T.Tensor((trips, 64, 64), "float16"),
        P: T.Tensor((trips, 64, 64), "float16"),
        R: T.Tensor((trips, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            U = T.alloc_shared((64, 64), "float16")
            f = T.alloc_fragment((64, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            for k in T.Pipelined(trips, num_stages=stages):
                T.copy(A[k, :, :], S)
                T.copy(B[k, :, :], U)
                if stored == "sometimes":
                    if n > k:
                        T.copy(S, O[k, :, :])
                    else:
                        T.copy(U, O[k, :, :])
                else:
                    T.copy(S, O[k, :, :])
                if stored == "twice":
                    T.copy(U, P[k, :, :])
                if stored == "in front of more work":
                    T.copy(U, f)
                    T.reduce_sum(f, r, dim=1)
                    T.copy(r, R[k, :])

    a, b = ints(trips, 64, 64, dtype="float16"), ints(trips, 64, 64, dtype="float16")
    o, p, r = a.clone(), torch.zeros_like(a), torch.zeros(trips, 64)
    if stored == "sometimes":
        o[2:] = b[2:]
    want_p = b if stored == "twice" else p
    want_r = b.float().sum(2) if stored == "in front of more work" else r
    return run(main, a, b, 2, out(o), changed(p, want_p), changed(r, want_r))
