# SPDX-License-Identifier: Apache-2.0
"""Launches: grids, sizes of the call, scalars, several kernels, persistent blocks, layouts, views, roles by hand."""

from __future__ import annotations

import torch
from witness import EVERYWHERE, ON_DEVICES, ON_HOPPER, changed, ints, out, program, randn, refused, run

import tilelang
import tilelang.language as T
from tilelang.layout import make_linear_layout, make_swizzled_layout


@program(threads=(128, 256), dtype=("bfloat16", "float32"))
def any_length(threads, dtype):
    """One compiled kernel for every length, also none, and no access beyond the end."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, threads), threads=threads) as b:
            for i in T.Parallel(threads):
                C[b * threads + i] = A[b * threads + i] + B[b * threads + i]

    runs = []
    for length in (1, 7, 255, 256, 257, 1003, 0):
        a, b = ints(length, dtype=dtype), ints(length, dtype=dtype)
        runs.append(run(main, a, b, out(a + b)))
    return runs


@program()
def symbols_related_to_each_other():
    """Extents that are expressions of symbols, bound by the first tensor that tells them."""
    m, n = T.dynamic("m n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), S: T.Tensor((m + 1,), "int32"), O: T.Tensor((m * 2, n), "float32")):
        with T.Kernel(m, T.ceildiv(n, 32), threads=32) as (bx, by):
            for j in T.Parallel(32):
                if by * 32 + j < n:
                    O[bx * 2, by * 32 + j] = A[bx, by * 32 + j] * S[bx + 1]
                    O[bx * 2 + 1, by * 32 + j] = A[bx, by * 32 + j] + S[bx]

    runs = []
    for M, N in ((3, 40), (5, 1), (1, 32)):
        a, s = ints(M, N).float(), ints(M + 1)
        want = torch.stack([a * s[1:, None], a + s[:-1, None]], 1).reshape(2 * M, N)
        runs.append(run(main, a, s, out(want)))
    return runs


@program()
def symbols_that_no_extent_is():
    """Symbols that stand in expressions alone: a dimension that is linear in one gives its value."""
    n, m, k, s = T.dynamic("n m k s")

    @T.prim_func
    def main(
        A: T.Tensor((2 * n,), "float32"),
        B: T.Tensor((n + 3, m * 4), "float32"),
        C: T.StridedTensor((m * 4, k - 1), (s * 2, 1), "float32"),
        O: T.Tensor((2 * n, k - 1), "float32"),
    ):
        with T.Kernel(n, T.ceildiv(k - 1, 32), threads=32) as (bx, by):
            for j in T.Parallel(32):
                if by * 32 + j < k - 1:
                    O[bx * 2, by * 32 + j] = A[2 * bx] * C[m, by * 32 + j] + s
                    O[bx * 2 + 1, by * 32 + j] = A[2 * bx + 1] * C[3 * m, by * 32 + j] + B[n + 2, m * 4 - 1]

    runs = []
    for N, M, K, S in ((3, 2, 41, 20), (1, 1, 2, 3), (8, 5, 33, 100)):
        a, b, c = ints(2 * N).float(), ints(N + 3, 4 * M).float(), ints(4 * M, 2 * S).float()[:, : K - 1]
        rows = torch.stack([a[::2, None] * c[M] + S, a[1::2, None] * c[3 * M] + b[-1, -1]], 1)
        runs.append(run(main, a, b, c, out(rows.reshape(2 * N, K - 1))))
    return runs


@program()
def numbers_of_the_call():
    """Scalars of every type; one of them decides the grid, another a branch."""

    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"),
        blocks: T.int32,
        x: T.float32,
        y: T.float64,
        z: T.int64,
        flag: T.bool,
        O: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(blocks, threads=32) as b:
            for i in T.Parallel(16):
                if flag:
                    O[b * 16 + i] = A[b * 16 + i] * x + T.cast(y, "float32")
                else:
                    O[b * 16 + i] = T.cast(z // 3, "float32")

    a, o = ints(64).float(), torch.full((64,), -1.0)
    first, second = o.clone(), o.clone()
    first[:48] = a[:48] * 2 + 0.5
    second[:16] = 1000
    return [
        run(main, a, 3, 2.0, 0.5, 7, True, changed(o, first)),
        run(main, a, 1, 2.0, 0.5, 3002, False, changed(o, second)),
        run(main, a, 0, 2.0, 0.5, 7, True, changed(o, o)),
    ]


@program()
def ragged_rows():
    """Rows of lengths in memory, stored one behind the other: a grid for the longest, guards for the rest."""
    total, rows = T.dynamic("total, rows")

    @T.prim_func
    def main(
        A: T.Tensor((total, 8), "float32"),
        starts: T.Tensor((rows + 1,), "int32"),
        O: T.Tensor((rows, 8), "float32"),
        longest: T.int32,
    ):
        with T.Kernel(rows, threads=64) as b:
            S = T.alloc_shared((16, 8), "float32")
            acc = T.alloc_fragment((8,), "float32")
            T.clear(acc)
            first, end = starts[b], starts[b + 1]
            for k in T.serial(T.ceildiv(longest, 16)):
                T.copy(A[first + k * 16, 0], S)
                for j in T.Parallel(8):
                    for i in T.serial(16):
                        if first + k * 16 + i < end:
                            acc[j] += S[i, j]
            T.copy(acc, O[b, :])

    lengths = (5, 0, 33, 16)
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0)]).int()
    a = ints(sum(lengths), 8).float()
    want = torch.stack([a[starts[i] : starts[i + 1]].sum(0) for i in range(4)])
    return run(main, a, starts, out(want), 33)


@program(shape=((0, 8), (4, 0), (0, 0)))
def tensors_over_nothing(shape):
    """A tensor without elements is no error: nothing is read, nothing is written."""
    m, n = T.dynamic("m, n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), O: T.Tensor((m, n), "float32"), Done: T.Tensor((1,), "int32")):
        with T.Kernel(T.ceildiv(m, 4), threads=32) as b:
            S = T.alloc_shared((4, 16), "float32")
            T.copy(A[b * 4, 0], S)
            T.copy(S, O[b * 4, 0])
        with T.Kernel(1, threads=32):
            Done[0] = m + n

    return run(main, torch.empty(shape), out(torch.empty(shape)), out(torch.tensor([sum(shape)]).int()))


@program()
def one_launch_after_another():
    """Several launches in a function, with memory between them that no argument gives."""

    @T.prim_func
    def main(A: T.Tensor((6, 40), "float32"), O: T.Tensor((40,), "float32")):
        partial = T.alloc_global((2, 40), "float32")
        with T.Kernel(2, threads=64) as b:
            for j in T.Parallel(40):
                partial[b, j] = A[b * 3, j] + A[b * 3 + 1, j] + A[b * 3 + 2, j]
        with T.Kernel(1, threads=32):
            for j in T.Parallel(40):
                O[j] = partial[0, j] + partial[1, j]

    a = ints(6, 40).float()
    return run(main, a, out(a.sum(0)))


@program(size=((8, 8, 132), (5, 11, 7), (13, 9, 40), (1, 1, 4)))
def persistent_blocks(size):
    """T.Persistent hands every tile to exactly one block, whatever the numbers."""
    m, n, workers = size

    @T.prim_func
    def main(C: T.Tensor((m, n), "int32")):
        with T.Kernel(workers, threads=32) as b:
            for i, j in T.Persistent([m, n], workers, b):
                if T.get_thread_binding() == 0:
                    T.atomic_add(C[i, j], 1)

    return run(main, changed(torch.zeros(m, n).int(), torch.ones(m, n).int()))


@program(options=({}, {"swizzle_size": 2}, {"column_major": False}))
def tile_scheduler(options):
    """T.PersistentTileScheduler around a product."""

    @T.prim_func
    def main(A: T.Tensor((128, 32), "float16"), B: T.Tensor((32, 96), "float16"), C: T.Tensor((128, 96), "float32")):
        with T.Kernel(4, threads=128) as b:
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            sched = T.PersistentTileScheduler(2, 3, 4, **options)
            sched.init(b)
            while sched.valid():
                m, n = sched.coord()
                T.copy(A[m * 64, 0], As)
                T.copy(B[0, n * 32], Bs)
                T.gemm(As, Bs, acc, clear_accum=True)
                T.copy(acc, C[m * 64, n * 32])
                sched.next_tile()

    a, b = ints(128, 32, dtype="float16"), ints(32, 96, dtype="float16")
    return run(main, a, b, out(a.float() @ b.float()))


@program(order=("row", "column"), panel=(1, 2, 10))
def rasterised_grid(order, panel):
    """T.use_swizzle changes the order of blocks, never their number; no block is visited twice."""

    @T.prim_func
    def main(O: T.Tensor((5, 7), "int32")):
        with T.Kernel(7, 5, threads=32) as (bx, by):
            T.use_swizzle(panel, order=order)
            if T.get_thread_binding() == 0:
                T.atomic_add(O[by, bx], by * 10 + bx + 1)

    want = (torch.arange(5).view(-1, 1) * 10 + torch.arange(7) + 1).int()
    return run(main, changed(torch.zeros(5, 7).int(), want))


@program()
def grids_of_three_dimensions():
    """Blocks have three indices; a single one unpacks as well."""

    @T.prim_func
    def main(O: T.Tensor((2, 3, 4), "int32"), P: T.Tensor((5,), "int32")):
        with T.Kernel(4, 3, 2, threads=32) as (bx, by, bz):
            if T.get_thread_binding() == 0:
                O[bz, by, bx] = bx + 10 * by + 100 * bz
        with T.Kernel(5, threads=32) as (bx,):
            P[bx] = bx * T.get_block_extent(0) + T.get_thread_extent(0)

    z, y, x = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(4), indexing="ij")
    return run(main, out((x + 10 * y + 100 * z).int()), out(torch.arange(5).int() * 5 + 32))


HAND_WRITTEN = {
    "flipped by the row": lambda i, j: i * 64 + (j ^ (i % 32)),
    "rows flipped": lambda i, j: ((i ^ (j % 4)) * 64 + j) ^ 1,
    "two indices": lambda i, j: [i, j ^ (i % 8)],
    "three indices": lambda i, j: (i // 4, j, i % 4),
    "skewed": lambda i, j: i * 64 + (i + j) % 64,
    "blocked": lambda i, j: (i // 8, j // 8, i % 8, j % 8),
}


@program(layout=tuple(HAND_WRITTEN), threads=(96, 128), dtype=("float32", "float16"))
def layouts_by_formula(layout, threads, dtype):
    """A layout is any formula for the address, with one index or several, also where the block has padding."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), dtype), O: T.Tensor((64, 32), dtype), B: T.Tensor((32, 64), dtype)):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((32, 64), dtype)
            F = T.alloc_fragment((32, 64), dtype)
            T.annotate_layout(
                {
                    S: T.Layout((32, 64), HAND_WRITTEN[layout]),
                    F: T.Fragment((32, 64), lambda i, j: (i * 2 + j // 32, j % 32)),
                }
            )
            T.copy(A, S)
            for i, j in T.Parallel(64, 32):
                O[i, j] = S[j, i]
            T.copy(S, F)
            T.copy(F, B)

    a = ints(32, 64, dtype=dtype)
    return run(main, a, out(a.T.contiguous()), out(a))


@program(layout=("swizzled", "linear", "transposed", "padded"))
def layouts_of_shared_tiles(layout):
    """An annotated layout moves elements in memory and nothing else."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        D: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            chosen = {
                "swizzled": lambda: make_swizzled_layout(As),
                "linear": lambda: make_linear_layout(As),
                "transposed": lambda: T.Layout((64, 64), lambda i, j: j * 64 + i),
                "padded": lambda: T.Layout((64, 64), lambda i, j: i * 72 + j),
            }[layout]()
            T.annotate_layout({As: chosen})
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, clear_accum=True)
            T.copy(acc, C)
            for i, j in T.Parallel(64, 64):
                D[j, i] = As[i, j]

    a, b = ints(64, 64, dtype="float16"), ints(64, 64, dtype="float16")
    return run(main, a, b, out(a.float() @ b.float()), out(a.t()))


@program(kind=("rows", "columns", "replicated"))
def layouts_of_fragments(kind):
    """A fragment lives where its annotation says; loops and reductions follow or move it."""
    forward = {
        "rows": lambda i, j: (i * 2 + j // 16, j % 16),
        "columns": lambda i, j: (j * 2 + i // 8, i % 8),
        "replicated": lambda i, j, rep: (j + 32 * rep, i),
    }[kind]

    @T.prim_func
    def main(A: T.Tensor((16, 32), "float32"), O: T.Tensor((16, 32), "float32"), S: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((16, 32), "float32")
            s = T.alloc_fragment((16,), "float32")
            T.annotate_layout({f: T.Fragment((16, 32), forward_fn=forward, replicate=2 if kind == "replicated" else 1)})
            T.copy(A, f)
            T.reduce_sum(f, s, dim=1)
            for i, j in T.Parallel(16, 32):
                f[i, j] = f[i, j] * 2.0 - s[i]
            T.copy(f, O)
            T.copy(s, S)

    a = ints(16, 32).float()
    return run(main, a, out(a * 2 - a.sum(1, keepdim=True)), out(a.sum(1)))


@program()
def views_of_tiles():
    """reshape and view give other shapes and types to the same memory, shared and in registers."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 24), "float32"),
        H: T.Tensor((16, 48), "int16"),
        O: T.Tensor((24, 16), "float32"),
        S: T.Tensor((12,), "float32"),
    ):
        with T.Kernel(1, threads=96):
            X = T.alloc_shared((16, 24), "float32")
            f = T.alloc_fragment((16, 24), "float32")
            s = T.alloc_fragment((12,), "float32")
            T.copy(A, X)
            T.copy(T.view(X, (16, 48), "int16"), H)
            flat = T.reshape(X, (384,))
            for i in T.Parallel(384):
                flat[i] += 1.0
            T.copy(T.reshape(X, (24, 16)), O)
            T.copy(A, f)
            T.reduce_sum(T.reshape(f, (12, 32)), s, dim=1)
            T.copy(s, S)

    a = ints(16, 24).float()
    return run(main, a, out(a.view(torch.int16)), out(a.reshape(24, 16) + 1), out(a.reshape(12, 32).sum(1)))


@program(
    key=(
        "tl.disable_warp_specialized",
        "tl.disable_tma_lower",
        "tl.disable_wgmma",
        "tl.disable_shared_memory_reuse",
        "tl.enable_fast_math",
        "tl.disable_safe_memory_legalize",
        "tl.disable_thread_storage_sync",
        "tir.disable_vectorize",
    )
)
def switches_change_no_value(key):
    """Every switch of a compilation gives the same product."""

    @T.prim_func
    def main(A: T.Tensor((64, 96), "float16"), B: T.Tensor((96, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            Cs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, Cs)
            T.copy(Cs, C)

    a, b = ints(64, 96, low=-2, high=3, dtype="float16"), ints(96, 64, low=-2, high=3, dtype="float16")
    return run(main, a, b, out((a.float() @ b.float()).half()), options={"pass_configs": {key: True}})


@program(key=("tl.disable_thread_storage_sync", "tl.disable_safe_memory_legalize"))
def the_program_takes_care(key):
    """Barriers and guards of a program's own are enough; tile statements beside them keep what they need."""

    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), O: T.Tensor((100,), "float32"), P: T.Tensor((128,), "float32")):
        with T.Kernel(2, threads=64) as b:
            t = T.get_thread_binding()
            S = T.alloc_shared((64,), "float32")
            U = T.alloc_shared((64,), "float32")
            S[t] = 0.0
            if b * 64 + t < 100:
                S[t] = A[b * 64 + t]
            T.sync_threads()
            if b * 64 + t < 100:
                O[b * 64 + t] = S[63 - t]
            T.copy(A[b * 64], U)
            for i in T.Parallel(64):
                P[b * 64 + i] = U[63 - i]

    a = randn(100)
    padded = torch.cat([a, torch.zeros(28)]).reshape(2, 64).flip(1).reshape(-1)
    return run(main, a, out(padded[:100]), out(padded), options={"pass_configs": {key: True}})


@program()
def outputs_by_position():
    """out_idx names the results, from either end, and the call makes them."""

    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), O: T.Tensor((40,), "float32"), P: T.Tensor((40,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(40):
                O[i] = A[i] * 2
                P[i] = i

    a = randn(40)
    want = (a * 2, torch.arange(40).int())
    return [run(main, a, returns=want, options={"out_idx": [1, -1]})]


@program(devices=ON_DEVICES)
def blocks_that_meet():
    """T.sync_grid lets every block see what all have written."""

    @T.prim_func
    def main(A: T.Tensor((96,), "float32"), W: T.Tensor((96,), "float32"), O: T.Tensor((96,), "float32")):
        with T.Kernel(3, threads=32) as b:
            for i in T.Parallel(32):
                W[b * 32 + i] = A[b * 32 + i] * 2.0
            T.sync_grid()
            for i in T.Parallel(32):
                O[b * 32 + i] = W[95 - (b * 32 + i)]

    a = randn(96)
    return run(main, a, out(a * 2), out(a.flip(0) * 2))


@program()
def shared_memory_is_used_again():
    """Tiles whose lives do not overlap share bytes; more than 48 KB needs no asking."""

    @T.prim_func
    def main(A: T.Tensor((4, 64, 256), "float32"), O: T.Tensor((4, 256, 64), "float32")):
        with T.Kernel(1, threads=256):
            for k in T.unroll(4, explicit=True):
                S = T.alloc_shared((64, 256), "float32")
                T.copy(A[k, :, :], S)
                for j, i in T.Parallel(256, 64):
                    O[k, j, i] = S[i, j]

    a = randn(4, 64, 256)
    return run(main, a, out(a.transpose(1, 2)))


@program(wrong=("threads", "scope", "rank"))
def launches_that_cannot_be_are_refused(wrong):
    """No threads, a tile outside a launch, too many indices."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            if wrong == "scope":
                S = T.alloc_shared((8,), "float32")
                T.copy(A, S)
            with T.Kernel(1, threads=0 if wrong == "threads" else 32):
                A[0, 0 if wrong == "rank" else slice(None)] = 1.0

        return main

    return refused(make)


@program(devices=ON_HOPPER, stages=(1, 2), consumers=(1, 2))
def producer_and_consumers_by_hand(stages, consumers):
    """A producer with the copy engine and consumers with wgmma, over rings of barriers."""
    M, N, K, BK = 64 * consumers, 64, 192, 64

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128 * (consumers + 1)):
            As = T.alloc_shared((stages, M, BK), "float16")
            Bs = T.alloc_shared((stages, BK, N), "float16")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([128 * consumers] * stages)
            tx = T.get_thread_binding()
            if tx >= 128 * consumers:
                T.set_max_nreg(24, 0)
                for k in T.serial(K // BK):
                    T.barrier_wait(empty[k % stages], (k // stages) % 2 ^ 1)
                    T.tma_copy(A[0, k * BK], As[k % stages, :, :], barrier=full[k % stages])
                    T.tma_copy(B[k * BK, 0], Bs[k % stages, :, :], barrier=full[k % stages])
                    if tx == 128 * consumers:
                        T.barrier_arrive(full[k % stages])
            else:
                T.set_max_nreg(240, 1)
                acc = T.alloc_fragment((M, N), "float32")
                T.clear(acc)
                for k in T.serial(K // BK):
                    T.barrier_wait(full[k % stages], k // stages % 2)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                    T.barrier_arrive(empty[k % stages])
                T.copy(acc, C)

    a, b = ints(M, K, dtype="float16"), ints(K, N, dtype="float16")
    return run(main, a, b, out(a.float() @ b.float()))


@program(devices=ON_HOPPER, by=("copy", "loop"), stages=(1, 2))
def producer_that_writes_tiles_itself(by, stages):
    """What threads store before they arrive at a barrier is seen by the products of those that wait for it."""

    @T.prim_func
    def main(A: T.Tensor((64, 160), "float16"), B: T.Tensor((160, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((stages, 64, 32), "float16")
            Bs = T.alloc_shared((stages, 32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([128] * stages)
            with T.ws(0):
                for k in T.serial(5):
                    T.barrier_wait(empty[k % stages], k // stages % 2 ^ 1)
                    if by == "copy":
                        T.copy(A[0, k * 32], As[k % stages, :, :])
                    else:
                        for i, j in T.Parallel(64, 32):
                            As[k % stages, i, j] = A[i, k * 32 + j]
                    T.copy(B[k * 32, 0], Bs[k % stages, :, :])
                    T.barrier_arrive(full[k % stages])
            with T.ws(1):
                T.clear(acc)
                for k in T.serial(5):
                    T.barrier_wait(full[k % stages], k // stages % 2)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                    T.barrier_arrive(empty[k % stages])
                T.copy(acc, C)

    a, b = ints(64, 160, low=-2, high=3, dtype="float16"), ints(160, 64, low=-2, high=3, dtype="float16")
    return run(main, a, b, out(a.float() @ b.float()))


@program(devices=ON_HOPPER, stages=(1, 2))
def tiles_handed_on_by_hand(stages):
    """A group loads tiles and another stores them: its arrival says that the store has read the tile."""

    @T.prim_func
    def main(A: T.Tensor((6, 64, 64), "float16"), O: T.Tensor((6, 64, 64), "float16")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((stages, 64, 64), "float16")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([128] * stages)
            t = T.get_thread_binding()
            if t < 128:
                for k in T.serial(6):
                    T.mbarrier_wait_parity(full[k % stages], k // stages & 1)
                    T.copy(S[k % stages, :, :], O[k, :, :])
                    T.mbarrier_arrive(empty[k % stages])
            else:
                for k in T.serial(6):
                    T.mbarrier_wait_parity(empty[k % stages], (k // stages & 1) ^ 1)
                    T.tma_copy(A[k, :, :], S[k % stages, :, :], barrier=full[k % stages])
                    if t == 128:
                        T.mbarrier_arrive(full[k % stages])

    a = randn(6, 64, 64, dtype="float16")
    return run(main, a, out(a))


@program(devices=ON_HOPPER)
def transfers_by_hand():
    """tma_copy in both directions, its barrier, its waits."""

    @T.prim_func
    def main(A: T.Tensor((3, 32, 64), "float16"), O: T.Tensor((3, 64, 32), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float16")
            D = T.alloc_shared((64, 32), "float16")
            full = T.alloc_barrier(1)
            for k in T.serial(3):
                T.tma_copy(A[k, :, :], S, barrier=full)
                if T.shuffle_elect(128):
                    T.mbarrier_arrive(full)
                T.mbarrier_wait_parity(full, k)
                for i, j in T.Parallel(64, 32):
                    D[i, j] = S[j, i]
                T.fence_proxy_async()
                T.tma_copy(D, O[k, :, :])
                T.tma_store_arrive()
                T.tma_store_wait(0)

    a = randn(3, 32, 64, dtype="float16")
    return run(main, a, out(a.transpose(1, 2)))


@program(devices=ON_HOPPER, count=(32, 96))
def barriers_between_warps(count):
    """Some warps write, arrive, and go on; the others wait, twice around."""

    @T.prim_func
    def main(A: T.Tensor((4, count), "float32"), O: T.Tensor((4, count), "float32")):
        with T.Kernel(1, threads=count + 128):
            S = T.alloc_shared((count,), "float32")
            full = T.alloc_barrier(count)
            empty = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            if tx < count:
                for k in T.serial(4):
                    T.barrier_wait(empty, k % 2 ^ 1)
                    S[tx] = A[k, tx] + k
                    T.barrier_arrive(full)
            else:
                for k in T.serial(4):
                    T.barrier_wait(full, k % 2)
                    if tx - count < count:
                        O[k, tx - count] = S[count - 1 - (tx - count)]
                    T.barrier_arrive(empty)

    a = ints(4, count).float()
    return run(main, a, out((a + torch.arange(4).view(4, 1)).flip(1)))


@program(devices=ON_DEVICES)
def asynchronous_copies_by_hand():
    """async_copy and ptx_cp_async with their groups."""

    @T.prim_func
    def main(A: T.Tensor((4, 128), "float32"), O: T.Tensor((4, 128), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((2, 128), "float32")
            tx = T.get_thread_binding()
            T.ptx_cp_async(T.access_ptr(S[0, tx * 4], "w"), T.access_ptr(A[0, tx * 4], "r"), 16)
            T.ptx_commit_group()
            for k in T.serial(4):
                if k < 3:
                    T.async_copy(A[k + 1, :], S[(k + 1) % 2, :])
                    T.ptx_wait_group(1)
                else:
                    T.ptx_wait_group(0)
                for i in T.Parallel(128):
                    O[k, i] = S[k % 2, 127 - i]

    a = randn(4, 128)
    return run(main, a, out(a.flip(1)))


@program(devices=ON_HOPPER)
def bulk_reduction():
    """Adding a tile with `use_tma` is one transfer."""

    @T.prim_func
    def main(A: T.Tensor((2, 32, 64), "float32"), O: T.Tensor((32, 64), "float32")):
        with T.Kernel(2, threads=128) as b:
            S = T.alloc_shared((32, 64), "float32")
            T.copy(A[b, :, :], S)
            T.atomic_add(O, S, use_tma=True)

    a, o = ints(2, 32, 64).float(), ints(32, 64).float()
    return run(main, a, changed(o, o + a.sum(0)))


@program(devices=("cpu", *ON_DEVICES))
def the_object_of_a_kernel():
    """Sources, parameters and outputs of a compiled kernel are there to read."""

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), O: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                O[i] = A[i]

    kernel = tilelang.compile(main, out_idx=-1, target="cpu")
    assert kernel.get_kernel_source() and kernel.get_host_source()
    assert kernel.out_idx == [1] and [tuple(p.shape) for p in kernel.params] == [(8,), (8,)]
    assert [p.name for p in kernel.prim_func.params] == ["A_handle", "O_handle"]
    a = randn(8)
    return run(main, a, out(a))


@program(devices=EVERYWHERE, order=("row", "column", "mlx"), panel=(1, 4, 20))
def walks_of_the_grid(order, panel):
    """However the grid is walked, each block does its own tile, panels that are too wide included."""

    @T.prim_func
    def main(B: T.Tensor((6, 10), "int32")):
        with T.Kernel(10, 6, threads=32) as (bx, by):
            T.use_swizzle(panel, order=order)
            if T.get_thread_binding() == 0:
                B[by, bx] = by * 10 + bx

    return run(main, out(torch.arange(60).reshape(6, 10).int()))


@program(domain=((7,), (6, 10), (2, 3, 5)), group=(1, 4, 8), options=({}, {"num_stages": 2}))
def persistent_walks(domain, group, options):
    """Persistent blocks visit the tiles of a domain of any rank once each, more blocks than tiles included."""
    count = torch.Size(domain).numel()

    @T.prim_func
    def main(B: T.Tensor(domain, "int32"), C: T.Tensor((count,), "int32")):
        with T.Kernel(9, threads=32) as b:
            for place in T.Persistent(list(domain), 9, b, group_size=group, **options):
                index = list(place) if len(domain) > 1 else [place]
                flat = 0
                for i, n in zip(index, domain):
                    flat = flat * n + i
                if T.get_thread_binding() == 0:
                    B[tuple(index)] = flat
                    T.atomic_add(C[flat], 1)

    want = torch.arange(count).reshape(domain).int()
    return run(main, out(want), changed(torch.zeros(count).int(), torch.ones(count).int()))
