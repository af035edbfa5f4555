# SPDX-License-Identifier: Apache-2.0
"""Threads by hand: exchange through shared memory, barriers, branches on the thread, warps, atomics."""

from __future__ import annotations

import torch
from witness import EVERYWHERE, ON_DEVICES, changed, ints, out, program, randn, refused, run

import tilelang.language as T


@program(n=(5, 20, 32, 64, 96), threads=(96, 128))
def exchange_of_a_part_of_the_block(n, threads):
    """Whole warps of a block, or lanes of one, exchange values; the barrier between is for them alone."""

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), O: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((n,), "float32")
            tx = T.get_thread_binding()
            if tx < n:
                S[tx] = A[tx] * 2.0
                O[tx] = S[n - 1 - tx]

    a = randn(n)
    return run(main, a, out(a.flip(0) * 2))


@program(devices=EVERYWHERE, part=((0, 5), (40, 59), (72, 96), (64, 96)), explicit=(False, True))
def exchange_of_some_lanes_in_rounds(part, explicit):
    """Some lanes of a warp pass values around again and again; the whole block reads what they leave."""
    low, high = part
    lanes = sum(1 << t % 32 for t in range(low, high))

    @T.prim_func
    def main(A: T.Tensor((96,), "int32"), O: T.Tensor((96,), "int32"), P: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((96,), "int32")
            tx = T.get_thread_binding()
            S[tx] = A[tx]
            if low <= tx < high:
                for k in T.serial(3):
                    x = T.alloc_var("int32", init=S[low + (tx - low + 1) % (high - low)])
                    if explicit:
                        T.sync_warp(mask=lanes)
                    S[tx] = x + k
                    if explicit:
                        T.sync_warp(mask=lanes)
                P[tx] = S[low + high - 1 - tx]
            O[tx] = S[95 - tx]

    a = ints(96)
    want = a.clone()
    want[low:high] = want[low:high].roll(-3) + 3
    own = torch.zeros(96).int()
    own[low:high] = want[low:high].flip(0)
    return run(main, a, out(want.flip(0)), changed(torch.zeros(96).int(), own))


@program()
def own_elements_need_no_barrier():
    """Threads that are no whole warp go on with what they left in memory themselves, in a branch that data decides."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((2, 64), "int32")
            tx = T.get_thread_binding()
            O[tx] = 0
            if tx < 20:
                S[0, tx] = A[tx]
                S[0, tx] = S[0, tx] * 2
                O[tx] = S[0, tx]
                O[tx] += 1
            if A[tx] > 0:
                S[1, 63 - tx] = O[tx]
                O[tx] = S[1, 63 - tx] - 7

    a = ints(64)
    want = torch.where(torch.arange(64) < 20, a * 2 + 1, torch.zeros(()).int())
    return run(main, a, out(torch.where(a > 0, want - 7, want)))


@program(loop=("vectorized", "serial", "unroll"), rows=(5, 40))
def own_rows_of_a_ragged_tensor(loop, rows):
    """Each thread changes a row of its own in place, in loops of any kind, as far as there are rows."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 8), "float32")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            i = b * 32 + T.get_thread_binding()
            if i < n:
                row = T.alloc_local((8,), "float32")
                for j in getattr(T, loop)(8):
                    row[j] = A[i, j]
                for j in getattr(T, loop)(8):
                    A[i, j] = row[j] * 2
                for j in T.serial(7):
                    A[i, j] += A[i, j + 1]

    a = ints(rows, 8).float()
    want = a * 2
    want[:, :7] += 2 * a[:, 1:]
    return run(main, changed(a, want))


@program()
def own_elements_behind_a_guard():
    """What every CUDA program does: thread i works on element i in several steps, as long as there is one."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as b:
            i = b * 64 + T.get_thread_binding()
            if i < n:
                A[i] += 1
                A[i] *= 2
                if A[i] > 4:
                    B[i] = A[i]
                    A[i] = -B[i]

    a, b = ints(100), ints(100)
    x = (a + 1) * 2
    return run(main, changed(a, torch.where(x > 4, -x, x)), changed(b, torch.where(x > 4, x, b)))


@program()
def written_by_some_read_by_all():
    """A quarter of the block prepares a table that every thread reads, again and again."""

    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), O: T.Tensor((4, 128), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32,), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(4):
                if tx >= 96:
                    S[tx - 96] = A[k, tx - 96]
                O[k, tx] = S[(tx + k) % 32]

    a = randn(4, 32)
    tx, k = torch.arange(128), torch.arange(4).view(4, 1)
    return run(main, a, out(a.gather(1, (tx + k) % 32)))


@program(steps=(1, 7))
def tree_in_shared_memory(steps):
    """A reduction by hand whose active threads get fewer with every step."""
    n = 2**steps

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), O: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((n,), "int32")
            tx = T.get_thread_binding()
            if tx < n:
                S[tx] = A[tx]
            for s in T.serial(steps):
                T.sync_threads()
                if tx < (n >> (s + 1)):
                    S[tx] = S[tx] + S[tx + (n >> (s + 1))]
            T.sync_threads()
            if tx == 0:
                O[0] = S[0]

    a = ints(n)
    return run(main, a, out(a.sum().int().view(1)))


@program()
def two_tiles_take_turns():
    """Two shared tiles are read and written alternately in one loop, as names and by index."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32"), P: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            X = T.alloc_shared((64,), "int32")
            Y = T.alloc_shared((64,), "int32")
            Z = T.alloc_shared((2, 64), "int32")
            tx = T.get_thread_binding()
            X[tx] = A[tx]
            Z[0, tx] = A[tx]
            for k in T.serial(3):
                Y[tx] = X[(tx + 1) % 64] + k
                X[tx] = Y[(tx + 1) % 64] * 2
                Z[(k + 1) % 2, tx] = Z[k % 2, (tx + 5) % 64] - k
            O[tx] = X[tx]
            P[tx] = Z[1, tx]

    a = ints(64)
    x, z = a.clone(), a.clone()
    for k in range(3):
        x = (x.roll(-1) + k).roll(-1) * 2
        z = z.roll(-5) - k
    return run(main, a, out(x), out(z))


@program()
def copied_then_filled_then_read():
    """A copy and a fill write the same place from different threads; the later one counts."""

    @T.prim_func
    def main(A: T.Tensor((1024,), "int32"), O: T.Tensor((1024,), "int32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((1024,), "int32")
            T.copy(A, S)
            T.fill(S[37:901], -7)
            for i in T.Parallel(100):
                S[i * 3] = S[1023 - i]
            T.copy(S, O)

    a = torch.arange(1, 1025, dtype=torch.int32)
    want = a.clone()
    want[37:901] = -7
    want[0:300:3] = want[924:].flip(0)
    return run(main, a, out(want))


@program()
def branches_of_warpgroups():
    """Each group of threads runs tile statements of its own, laid out over its threads alone."""

    @T.prim_func
    def main(A: T.Tensor((40, 24), "float32"), O: T.Tensor((40,), "float32"), P: T.Tensor((24, 40), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((40, 24), "float32")
            tx = T.get_thread_binding()
            T.copy(A, S)
            if tx < 128:
                f = T.alloc_fragment((40, 24), "float32")
                s = T.alloc_fragment((40,), "float32")
                T.copy(S, f)
                T.reduce_sum(f, s, dim=1)
                T.copy(s, O)
            else:
                for j, i in T.Parallel(24, 40):
                    P[j, i] = S[i, j] * 3.0

    a = ints(40, 24, dtype="float32")
    return run(main, a, out(a.sum(1)), out(a.t() * 3))


@program()
def groups_hand_over():
    """One group writes what the other reads, in several rounds, with barriers of the whole block."""

    @T.prim_func
    def main(A: T.Tensor((3, 128), "float32"), O: T.Tensor((3, 128), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((128,), "float32")
            for k in T.serial(3):
                with T.ws(0):
                    for i in T.Parallel(128):
                        S[i] = A[k, i]
                T.sync_threads()
                with T.ws(1):
                    for i in T.Parallel(128):
                        O[k, i] = S[127 - i]
                T.sync_threads()

    a = randn(3, 128)
    return run(main, a, out(a.flip(1)))


@program(devices=ON_DEVICES)
def shuffles_of_every_kind():
    """Values pass between the lanes of a warp; segments by `width`."""

    @T.prim_func
    def main(A: T.Tensor((96,), "int32"), O: T.Tensor((4, 96), "int32"), S: T.Tensor((2, 96), "int32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            x = A[tx]
            O[0, tx] = T.shfl_xor(x, 5)
            O[1, tx] = T.shfl_down(x, 3)
            O[2, tx] = T.shfl_up(x, 3)
            O[3, tx] = T.shfl_sync(x, 7)
            S[0, tx] = T.shfl_down(x, 1, 8)
            S[1, tx] = T.shfl_sync(x, 2, 16)

    a, lane = ints(96), torch.arange(96)
    inside = lambda at, keep, width=32: a[torch.where(keep, at, lane)]
    l = lane % 32
    want = torch.stack([a[lane ^ 5], inside(lane + 3, l + 3 < 32), inside(lane - 3, l >= 3), a[lane // 32 * 32 + 7]])
    parts = torch.stack([inside(lane + 1, lane % 8 < 7), a[lane // 16 * 16 + 2]])
    return run(main, a, out(want), out(parts))


@program(devices=ON_DEVICES, dtype=("int32", "float32"))
def reductions_of_a_warp(dtype):
    """T.warp_reduce_* give every lane the result of its warp."""

    @T.prim_func
    def main(A: T.Tensor((64,), dtype), O: T.Tensor((3, 64), dtype)):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            O[0, tx] = T.warp_reduce_sum(A[tx])
            O[1, tx] = T.warp_reduce_max(A[tx])
            O[2, tx] = T.warp_reduce_min(A[tx])

    a = ints(64, dtype=dtype)
    w = a.view(2, 32)
    want = torch.stack([w.sum(1).to(a.dtype), w.amax(1), w.amin(1)]).repeat_interleave(32, 1)
    return run(main, a, out(want))


@program(devices=ON_DEVICES)
def votes():
    """any, all and ballot over a warp; who is who in the block."""

    @T.prim_func
    def main(
        A: T.Tensor((128,), "int32"),
        V: T.Tensor((2, 128), "int32"),
        B: T.Tensor((128,), "uint32"),
        W: T.Tensor((3, 128), "int32"),
    ):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            V[0, tx] = T.cast(T.any_sync(A[tx] > 6), "int32")
            V[1, tx] = T.cast(T.all_sync(A[tx] > -8), "int32")
            B[tx] = T.ballot(A[tx] > 0)
            W[0, tx] = T.get_lane_idx()
            W[1, tx] = T.get_warp_idx()
            W[2, tx] = T.get_warp_group_idx()

    a = ints(128)
    a[32:64] = 1
    w, tx = a.view(4, 32), torch.arange(128)
    each = lambda x: x.int().repeat_interleave(32)
    masks = torch.tensor([sum(1 << i for i in range(32) if row[i] > 0) for row in w], dtype=torch.int64)
    vote = torch.stack([each((w > 6).any(1)), each((w > -8).all(1))])
    who = torch.stack([tx % 32, tx // 32, tx // 128]).int()
    return run(main, a, out(vote), out(masks.repeat_interleave(32).to(torch.uint32)), out(who))


@program(shape=((32, 4), (8, 3, 2)))
def blocks_of_two_and_three_dimensions(shape):
    """`threads` may be a tuple; tile statements see the flat block."""
    count = torch.Size(shape).numel()

    @T.prim_func
    def main(A: T.Tensor((20, 12), "float32"), O: T.Tensor((12, 20), "float32"), X: T.Tensor((count,), "int32")):
        with T.Kernel(1, threads=shape):
            S = T.alloc_shared((20, 12), "float32")
            T.copy(A, S)
            for j, i in T.Parallel(12, 20):
                O[j, i] = S[i, j]
            x, y = T.get_thread_binding(0), T.get_thread_binding(1)
            z = T.get_thread_binding(2) if len(shape) == 3 else 0
            X[x + shape[0] * (y + shape[1] * z)] = x * 100 + y * 10 + z

    a = randn(20, 12)
    x, y, z = torch.meshgrid(*(torch.arange(n) for n in (*shape, 1)[:3]), indexing="ij")
    flat = (x * 100 + y * 10 + z).permute(2, 1, 0).reshape(-1).int()
    return run(main, a, out(a.t()), out(flat))


@program(dtype=("float32", "float16", "bfloat16", "int32", "float64"))
def sums_from_all_blocks(dtype):
    """Atomic addition of elements, from several blocks to the same places."""

    @T.prim_func
    def main(A: T.Tensor((4, 40), dtype), O: T.Tensor((10,), dtype)):
        with T.Kernel(4, threads=64) as b:
            for i in T.Parallel(40):
                T.atomic_add(O[i % 10], A[b, i])

    a, o = ints(4, 40, low=-2, high=3, dtype=dtype), ints(10, dtype=dtype)
    want = (o.double() + a.double().view(4, 4, 10).sum((0, 1))).to(o.dtype)
    return run(main, a, changed(o, want))


@program(dtype=("float32", "float16", "int32", "uint32", "int64"))
def extremes_from_all_blocks(dtype):
    """Atomic maxima and minima, with numbers as literals and of wider types."""
    low = 0 if dtype == "uint32" else -8

    @T.prim_func
    def main(A: T.Tensor((3, 50), dtype), X: T.Tensor((5,), dtype), N: T.Tensor((5,), dtype), L: T.Tensor((5,), dtype)):
        with T.Kernel(3, threads=64) as b:
            for i in T.Parallel(50):
                T.atomic_max(X[i % 5], A[b, i])
                T.atomic_min(N[i % 5], A[b, i])
                T.atomic_max(L[i % 5], 7)

    a = ints(3, 50, low=low, dtype=dtype)
    x, n, l = ints(5, low=low, dtype=dtype), ints(5, low=low, dtype=dtype), ints(5, low=low, dtype=dtype)
    groups = a.double().view(3, 10, 5)
    top, least = groups.amax((0, 1)), groups.amin((0, 1))
    back = lambda v: v.to(a.dtype)
    return run(
        main, a,
        changed(x, back(torch.maximum(x.double(), top))),
        changed(n, back(torch.minimum(n.double(), least))),
        changed(l, back(torch.clamp(l.double(), min=7))),
    )  # fmt: skip


@program()
def previous_values_are_tickets():
    """`return_prev` hands out every number once."""

    @T.prim_func
    def main(C: T.Tensor((1,), "int32"), O: T.Tensor((96,), "int32")):
        with T.Kernel(3, threads=32):
            tx = T.get_thread_binding()
            ticket = T.atomic_add(C[0], 1, return_prev=True)
            O[ticket] = ticket * 2

    return run(main, changed(torch.zeros(1).int(), torch.tensor([96]).int()), out(torch.arange(96).int() * 2))


@program(dtype=("float32", "float16"), edge=(False, True))
def tiles_added_to_memory(dtype, edge):
    """Atomic addition of a whole tile, from shared memory and registers, also over the edge of the tensor."""
    M, N = (20, 30) if edge else (24, 32)

    @T.prim_func
    def main(A: T.Tensor((24, 32), dtype), O: T.Tensor((M, N), dtype)):
        with T.Kernel(2, threads=64):
            S = T.alloc_shared((24, 32), dtype)
            f = T.alloc_fragment((24, 32), dtype)
            T.copy(A, S)
            T.copy(A, f)
            T.atomic_add(O[0:24, 0:32], S)
            T.atomic_add(O[0, 0], f)

    a, o = ints(24, 32, low=-2, high=3, dtype=dtype), ints(M, N, dtype=dtype)
    return run(main, a, changed(o, o + 4 * a[:M, :N]))


@program(lanes=(2, 4), dtype=("float32", "float16"))
def vectors_added_to_memory(lanes, dtype):
    """atomic_addx2 and atomic_addx4 add neighbours."""
    if lanes == 4 and dtype == "float16":
        lanes = 2
    add = T.atomic_addx2 if lanes == 2 else T.atomic_addx4

    @T.prim_func
    def main(A: T.Tensor((16, 8), dtype), O: T.Tensor((16, 8), dtype)):
        with T.Kernel(2, threads=32):
            S = T.alloc_shared((16, 8), dtype)
            T.copy(A, S)
            for i, j in T.Parallel(16, 8 // lanes):
                add(O[i, j * lanes], S[i, j * lanes])

    a, o = ints(16, 8, dtype=dtype), ints(16, 8, dtype=dtype)
    return run(main, a, changed(o, o + 2 * a))


@program()
def histogram_in_two_levels():
    """Counts in shared memory, then one addition a bin in global memory."""

    @T.prim_func
    def main(A: T.Tensor((1000,), "int32"), H: T.Tensor((17,), "int32")):
        with T.Kernel(4, threads=96) as b:
            C = T.alloc_shared((17,), "int32")
            T.clear(C)
            for i in T.Parallel(250):
                T.atomic_add(C[A[b * 250 + i]], 1)
            for i in T.Parallel(17):
                T.atomic_add(H[i], C[i])

    a = torch.randint(0, 17, (1000,), dtype=torch.int32)
    return run(main, a, changed(torch.zeros(17).int(), torch.bincount(a, minlength=17).int()))


@program(early=("continue", "break", "guard"))
def histogram_by_threads_in_rounds(early):
    """Each thread counts what it finds as long as there is something; the bins are zero before any of them starts."""

    @T.prim_func
    def main(A: T.Tensor((1000,), "int32"), H: T.Tensor((17,), "int32")):
        with T.Kernel(3, threads=128) as b:
            C = T.alloc_shared((17,), "int32")
            tx = T.get_thread_binding()
            T.clear(C)
            for r in T.serial(3):
                i = (b * 3 + r) * 128 + tx
                if early == "guard":
                    if i < 1000:
                        T.atomic_add(C[A[i]], 1)
                else:
                    if i >= 1000:
                        if early == "continue":
                            continue
                        else:
                            break
                    T.atomic_add(C[A[i]], 1)
            for i in T.Parallel(17):
                T.atomic_add(H[i], C[i])

    a = torch.randint(0, 17, (1000,), dtype=torch.int32)
    return run(main, a, changed(torch.zeros(17).int(), torch.bincount(a, minlength=17).int()))


@program()
def stores_that_data_decides_follow_those_of_all_threads():
    """What a thread overwrites in a branch was written by another one in front of it."""

    @T.prim_func
    def main(A: T.Tensor((96,), "int32"), O: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((96,), "int32")
            tx = T.get_thread_binding()
            S[tx] = 7
            if A[tx] > 0:
                S[95 - tx] = A[tx]
            for i in T.Parallel(96):
                O[i] = S[i]

    a = ints(96)
    return run(main, a, out(torch.where(a > 0, a, 7).flip(0).int()))


@program(order=("relaxed", "acquire", "release", "acq_rel", "seq_cst"))
def memory_orders(order):
    """Loads and stores that are atomic, in every order that fits them."""

    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), O: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx < 4:
                T.atomic_store(
                    O[tx],
                    T.atomic_load(A[tx], "acquire" if order == "acquire" else "relaxed"),
                    "release" if order == "release" else "relaxed",
                )
                T.atomic_add(O[tx], 1, memory_order=order)
                T.atomic_or(O[tx], 64)

    a = ints(4, low=0)
    return run(main, a, out((a + 1) | 64))


@program()
def a_bad_order_is_refused():
    """An order that does not exist names itself in the error."""

    def make():
        @T.prim_func
        def main(O: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=32):
                T.atomic_add(O[0], 1, memory_order="sometimes")

        return main

    return refused(make, "sometimes")


@program()
def leaving_early():
    """T.thread_return ends a thread; a loop with `break` depends on the thread."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            t = T.alloc_var("int32", 0)
            for k in T.serial(10):
                if k > tx % 7:
                    break
                if A[k] < 0:
                    continue
                t = t + A[k]
            O[tx] = t
            if tx % 3 == 0:
                T.thread_return()
            O[tx] = -t

    a = ints(64)
    part = torch.stack([sum((a[k] for k in range(t % 7 + 1) if a[k] > 0), torch.tensor(0)) for t in range(64)]).int()
    return run(main, a, out(torch.where(torch.arange(64) % 3 == 0, part, -part).int()))


@program(devices=("sim",))
def named_barriers():
    """T.sync_threads with a number and a count: pairs of warps meet without the others."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            S[tx] = A[tx]
            if tx < 64:
                T.sync_threads(3, 64)
                O[tx] = S[63 - tx]
            else:
                T.sync_threads(4, 64)
                O[tx] = S[191 - tx]

    a = randn(128)
    return run(main, a, out(a.view(2, 64).flip(1).reshape(-1)))


@program(n=(6, 40))
def per_thread_arrays(n):
    """T.alloc_local gives each thread an array of its own: a sort by insertion."""

    @T.prim_func
    def main(A: T.Tensor((32, n), "int32"), O: T.Tensor((32, n), "int32")):
        with T.Kernel(1, threads=32):
            v = T.alloc_local((n,), "int32")
            tx = T.get_thread_binding()
            for i in T.serial(n):
                v[i] = A[tx, i]
            for i in T.serial(1, n):
                for j in T.serial(i):
                    if v[i - j - 1] > v[i - j]:
                        v[i - j - 1], v[i - j] = v[i - j], v[i - j - 1]
            for i in T.serial(n):
                O[tx, i] = v[i]

    a = ints(32, n, low=-99, high=99)
    return run(main, a, out(a.sort(1).values))


@program(devices=ON_DEVICES, N=(64, 128))
def argmax_by_a_tree_of_comparisons(N):
    """Branches within branches, between barriers of the program's own: what they touch is theirs to order."""

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((1,), "float32"), I: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=N):
            s = T.alloc_shared((N,), "float32")
            at = T.alloc_shared((N,), "int32")
            t = T.get_thread_binding()
            s[t] = X[t]
            at[t] = t
            T.sync_threads()
            n = T.alloc_var("int32", init=N // 2)
            while n > 0:
                if t < n:  # noqa: SIM102 -- the program is about branches within branches
                    if s[t + n] > s[t]:
                        s[t] = s[t + n]
                        at[t] = at[t + n]
                T.sync_threads()
                n = n // 2
            if t == 0:
                Y[0] = s[0]
                I[0] = at[0]

    x = randn(N)
    return run(main, x, out(x.max()[None]), out(x.argmax()[None].int()))


@program(devices=ON_DEVICES)
def bitonic_sort_with_barriers():
    """Pairs of elements that only bit operations tell apart are swapped under a condition on both."""
    N = 64

    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=N // 2):
            s = T.alloc_shared((N,), "int32")
            t = T.get_thread_binding()
            s[t] = X[t]
            s[t + N // 2] = X[t + N // 2]
            T.sync_threads()
            k = T.alloc_var("int32", init=2)
            j = T.alloc_var("int32")
            while k <= N:
                j = k // 2
                while j > 0:
                    i = 2 * t - (t & (j - 1))
                    low, high = s[i], s[i + j]
                    if (low > high) == ((i & k) == 0):
                        s[i] = high
                        s[i + j] = low
                    T.sync_threads()
                    j = j // 2
                k = k * 2
            Y[t] = s[t]
            Y[t + N // 2] = s[t + N // 2]

    x = ints(N, low=-99, high=99)
    return run(main, x, out(x.sort().values))


@program(devices=ON_DEVICES)
def an_index_that_wraps_is_that_of_another_thread():
    """Eight bits count modulo 256: the barrier in front of the read is needed."""
    N = 256

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), O: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            s = T.alloc_shared((N,), "float32")
            t = T.get_thread_binding()
            s[t] = X[t]
            O[t] = s[T.cast(T.cast(t + 256 + 33, "uint8"), "int32")]

    x = randn(N)
    return run(main, x, out(x.roll(-33)))


@program(N=(64,))
def bitonic_sort_by_shifts_of_loop_variables(N):
    """A distance of `1 << (k - 1 - j)`, which has no value where k and j are not known together."""
    steps = N.bit_length() - 1

    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=N):
            s = T.alloc_shared((N,), "float32")
            T.copy(X, s)
            for k in T.serial(1, steps + 1):
                for j in T.serial(k):
                    distance = 1 << (k - 1 - j)
                    for i in T.Parallel(N):
                        other = i ^ distance
                        if other > i and (s[i] > s[other]) == ((i & (1 << k)) == 0):
                            swap = s[i]
                            s[i] = s[other]
                            s[other] = swap
            T.copy(s, Y)

    x = randn(N)
    return run(main, x, out(x.sort().values))


@program(devices=ON_DEVICES, op=("sum", "argmax"))
def reduction_over_a_dimension_of_the_threads(op):
    """The spelling of TensorIR, with one value and with two; some threads contribute nothing."""
    N, K, tn, tk = 8, 48, 8, 16

    def add(x, y):
        return x + y

    def greater(x, i, y, j):
        return T.max(x, y), T.if_then_else(y > x, j, i)

    @T.prim_func
    def main(A: T.Tensor((N, K), "float32"), B: T.Tensor((N,), "float32"), I: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=(tn, tk)):
            n, k = T.get_thread_bindings()
            x = T.alloc_local((2,), "float32")
            i = T.alloc_local((2,), "int32")
            x[0] = A[n, k]
            i[0] = k
            if op == "sum":
                with T.attr(
                    T.comm_reducer(add, [T.Cast("float32", 0)]),
                    "reduce_scope",
                    T.reinterpret(T.uint64(0), dtype="handle"),
                ):
                    T.evaluate(T.tvm_thread_allreduce(T.uint32(1), x[0], k < 10, x[1], k, dtype="handle"))
                i[1] = 0
            else:
                with T.attr(T.comm_reducer(greater, [T.min_value("float32"), 0]), "reduce_scope", 0):
                    T.tvm_thread_allreduce(2, x[0], i[0], True, x[1], i[1], k)
            if k == 5:
                B[n] = x[1]
                I[n] = i[1]

    a = ints(N, K, low=-999, high=999, dtype="float32")
    if op == "sum":
        return run(main, a, out(a[:, :10].sum(1)), out(torch.zeros(N, dtype=torch.int32)))
    return run(main, a, out(a[:, :tk].amax(1)), out(a[:, :tk].argmax(1).int()))
