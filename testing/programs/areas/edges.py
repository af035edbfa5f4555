# SPDX-License-Identifier: Apache-2.0
"""Corners: indices from memory into registers, extents of the call, nested pipelines."""

from __future__ import annotations

from functools import partial

import torch
from witness import EVERYWHERE, changed, ints, out, program, randn, run

import tilelang.language as T

program = partial(program, devices=EVERYWHERE)


@program()
def registers_by_an_index_from_memory():
    """A fragment is gathered from and scattered to by indices that memory holds."""

    @T.prim_func
    def main(
        A: T.Tensor((48,), "float32"),
        R: T.Tensor((48,), "int32"),
        G: T.Tensor((48,), "float32"),
        S: T.Tensor((48,), "float32"),
    ):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((48,), "float32")
            g = T.alloc_fragment((48,), "float32")
            T.copy(A, f)
            for i in T.Parallel(48):
                g[i] = f[R[i]]
            T.copy(g, G)
            T.clear(g)
            for i in T.Parallel(48):
                g[R[i]] = f[i] + 1.0
            T.copy(g, S)

    a, r = randn(48), torch.randperm(48).int()
    scattered = torch.empty(48)
    scattered[r.long()] = a + 1
    return run(main, a, r, out(a[r.long()]), out(scattered))


@program(shift=(-3, 0, 5))
def tiles_that_start_outside(shift):
    """A copy that starts before the tensor, or ends behind it, reads zeros there and stores nothing."""

    @T.prim_func
    def main(
        A: T.Tensor((20, 24), "float32"),
        O: T.Tensor((16, 16), "float32"),
        P: T.Tensor((20, 24), "float32"),
        by: T.int32,
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 16), "float32")
            T.copy(A[by : by + 16, by * 2 : by * 2 + 16], S)
            T.copy(S, O)
            T.copy(S, P[by : by + 16, by * 2 : by * 2 + 16])

    a = ints(20, 24).float()
    padded = torch.zeros(60, 64)
    padded[20:40, 20:44] = a
    want = padded[20 + shift : 36 + shift, 20 + 2 * shift : 36 + 2 * shift]
    p = torch.zeros(60, 64)
    p[20 + shift : 36 + shift, 20 + 2 * shift : 36 + 2 * shift] = want
    return run(main, a, out(want.clone()), changed(torch.zeros(20, 24), p[20:40, 20:44].clone()), shift)


@program(stages=((2, 2), (1, 3)))
def pipeline_in_a_pipeline(stages):
    """Both loops of a nest ask for stages: the outer one loads one operand, the inner one the other."""

    @T.prim_func
    def main(
        A: T.Tensor((2, 64, 32), "float16"), B: T.Tensor((2, 3, 32, 32), "float16"), C: T.Tensor((64, 32), "float32")
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            T.clear(acc)
            for m in T.Pipelined(2, num_stages=stages[0]):
                T.copy(A[m, :, :], As)
                for n in T.Pipelined(3, num_stages=stages[1]):
                    T.copy(B[m, n, :, :], Bs)
                    T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a, b = ints(2, 64, 32, dtype="float16"), ints(2, 3, 32, 32, dtype="float16")
    return run(main, a, b, out(sum(a[m].float() @ b[m, n].float() for m in range(2) for n in range(3))))


@program()
def tiles_made_inside_loops_and_branches():
    """Allocations stand where they are used, several of one name."""

    @T.prim_func
    def main(A: T.Tensor((3, 32, 16), "float32"), O: T.Tensor((3, 16), "float32")):
        with T.Kernel(1, threads=64):
            for k in T.serial(3):
                f = T.alloc_fragment((32, 16), "float32")
                s = T.alloc_fragment((16,), "float32")
                T.copy(A[k, :, :], f)
                if k == 1:
                    t = T.alloc_shared((16,), "float32")
                    T.reduce_max(f, s, dim=0)
                    T.copy(s, t)
                    for j in T.Parallel(16):
                        O[k, j] = t[15 - j]
                else:
                    t = T.alloc_shared((16,), "float32")
                    T.reduce_sum(f, s, dim=0)
                    T.copy(s, t)
                    for j in T.Parallel(16):
                        O[k, j] = t[j]

    a = ints(3, 32, 16).float()
    return run(main, a, out(torch.stack([a[0].sum(0), a[1].amax(0).flip(0), a[2].sum(0)])))


@program(rows=(1, 5, 16))
def slices_whose_extent_the_call_gives(rows):
    """The first rows of a tile are copied, however many the call names."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 24), "float32"), O: T.Tensor((16, 24), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 24), "float32")
            T.fill(S, -1.0)
            for i, j in T.Parallel(16, 24):
                if i < n:
                    S[i, j] = A[i, j] * 2.0
            T.copy(S, O)

    a, want = randn(rows, 24), torch.full((16, 24), -1.0)
    want[:rows] = a * 2
    return run(main, a, out(want))


@program(dtype=("bool", "uint8", "int16"))
def tiles_of_small_types(dtype):
    """Tiles of bool and of narrow numbers in shared memory and registers, transposed and compared."""

    @T.prim_func
    def main(A: T.Tensor((20, 12), dtype), O: T.Tensor((12, 20), dtype), C: T.Tensor((20,), "int32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((20, 12), dtype)
            f = T.alloc_fragment((12, 20), dtype)
            n = T.alloc_fragment((20, 12), "int32")
            c = T.alloc_fragment((20,), "int32")
            T.copy(A, S)
            for j, i in T.Parallel(12, 20):
                f[j, i] = S[i, j]
            T.copy(f, O)
            for i, j in T.Parallel(20, 12):
                n[i, j] = T.if_then_else(S[i, j] != S[0, 0], 1, 0)
            T.reduce_sum(n, c, dim=1)
            T.copy(c, C)

    a = ints(20, 12, low=0, high=2, dtype=dtype)
    return run(main, a, out(a.t()), out((a != a[0, 0]).sum(1).int()))


@program(threads=(33, 127, 192))
def products_in_blocks_with_threads_to_spare(threads):
    """A block that is no whole number of warps: elementwise work by all, and no hang at any barrier."""

    @T.prim_func
    def main(A: T.Tensor((24, 30), "float32"), O: T.Tensor((30,), "float32"), C: T.Tensor((24, 30), "float32")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((24, 30), "float32")
            f = T.alloc_fragment((24, 30), "float32")
            s = T.alloc_fragment((30,), "float32")
            T.copy(A, S)
            for i, j in T.Parallel(24, 30):
                f[i, j] = S[23 - i, 29 - j]
            T.reduce_sum(f, s, dim=0)
            T.copy(s, O)
            T.cumsum(S, dim=0)
            T.copy(S, C)

    a = ints(24, 30).float()
    return run(main, a, out(a.sum(0).flip(0)), out(a.cumsum(0)))


@program()
def loop_bounds_from_tiles():
    """Bounds of serial loops come out of shared memory and of variables; the loop may be empty for some blocks."""

    @T.prim_func
    def main(A: T.Tensor((4, 10), "int32"), B: T.Tensor((4, 2), "int32"), O: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=32) as b:
            bounds = T.alloc_shared((2,), "int32")
            s = T.alloc_fragment((1,), "int32")
            T.copy(B[b, :], bounds)
            s[0] = 0
            for k in T.serial(bounds[0], bounds[1]):
                s[0] = s[0] + A[b, k]
            if T.get_thread_binding() == 0:
                O[b] = s[0]

    a, b = ints(4, 10), torch.tensor([[0, 10], [3, 4], [5, 5], [7, 2]]).int()
    return run(main, a, b, out(torch.stack([a[i, b[i, 0] : b[i, 1]].sum() for i in range(4)]).int()))


@program()
def rows_of_one_and_columns_of_one():
    """Extents of one anywhere: tiles, loops, reductions, copies."""

    @T.prim_func
    def main(
        A: T.Tensor((1, 40), "float32"),
        B: T.Tensor((40, 1), "float32"),
        O: T.Tensor((1, 1), "float32"),
        P: T.Tensor((40, 1), "float32"),
    ):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((1, 40), "float32")
            b = T.alloc_shared((40, 1), "float32")
            c = T.alloc_fragment((40, 1), "float32")
            s = T.alloc_fragment((1, 1), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for j, i in T.Parallel(40, 1):
                c[j, i] = a[i, j] * b[j, i]
            T.reduce_sum(c, s, dim=0)
            T.copy(s, O)
            T.copy(c, P)

    a, b = ints(1, 40).float(), ints(40, 1).float()
    return run(main, a, b, out((a.t() * b).sum().view(1, 1)), out(a.t() * b))


@program(n=(1, 31, 100))
def scalar_code_around_tile_code(n):
    """A running value in registers is updated by a reduction in each step and steers the next one."""

    @T.prim_func
    def main(A: T.Tensor((5, n), "int32"), O: T.Tensor((5,), "int32")):
        with T.Kernel(1, threads=32):
            f = T.alloc_fragment((n,), "int32")
            s = T.alloc_fragment((1,), "int32")
            state = T.alloc_var("int32", 1)
            for k in T.serial(5):
                T.copy(A[k, :], f)
                for i in T.Parallel(n):
                    f[i] = T.if_then_else(state % 2 == 0, f[i], -f[i]) + state
                T.reduce_max(f, s, dim=0)
                state = state + s[0] % 5
                if T.get_thread_binding() == 0:
                    O[k] = state

    a, state, want = ints(5, n), 1, []
    for k in range(5):
        f = (a[k] if state % 2 == 0 else -a[k]) + state
        state += int(f.max()) % 5
        want.append(state)
    return run(main, a, out(torch.tensor(want).int()))


@program(threads=(128, 192))
def batches_of_products_of_any_size(threads):
    """Three symbols, one of them in an expression alone; operands of rank three, tails in every dimension."""
    b, m, k = T.dynamic("b, m, k")
    N = 48

    @T.prim_func
    def main(
        A: T.Tensor((b, m, 2 * k), "float16"),
        B: T.Tensor((b, 2 * k, N), "float16"),
        C: T.Tensor((b, m, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(m, 64), b, threads=threads) as (bx, by, bz):
            As = T.alloc_shared((1, 64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(2 * k, 32), num_stages=2):
                T.copy(A[bz, by * 64, step * 32], As)
                T.copy(B[bz, step * 32, bx * 32], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[bz, by * 64, bx * 32])

    runs = []
    for batch, M, K in ((2, 70, 40), (1, 5, 4), (3, 64, 17)):
        x = ints(batch, M, 2 * K, low=-2, high=3, dtype="float16")
        y = ints(batch, 2 * K, N, low=-2, high=3, dtype="float16")
        runs.append(run(main, x, y, out(x.float() @ y.float())))
    return runs


@program(rows=(1, 9))
def statistics_from_a_launch_before(rows):
    """A macro holds the launch that fills workspaces of a symbolic size; the next launch reads them."""
    n = T.dynamic("n")

    @T.macro
    def statistics(X, mean, scale, count):
        with T.Kernel(T.ceildiv(count, 4), threads=160) as b:
            f = T.alloc_fragment((4, 50), "float32")
            s = T.alloc_fragment((4,), "float32")
            q = T.alloc_fragment((4,), "float32")
            T.copy(X[b * 4, 0], f)
            T.reduce_sum(f, s, dim=-1)
            for i, j in T.Parallel(4, 50):
                f[i, j] = (f[i, j] - s[i] / 50) * (f[i, j] - s[i] / 50)
            T.reduce_sum(f, q, dim=-1)
            for i in T.Parallel(4):
                if b * 4 + i < count:
                    mean[b * 4 + i] = s[i] / 50
                    scale[b * 4 + i] = T.rsqrt(q[i] / 50 + 1e-5)

    @T.prim_func
    def main(X: T.Tensor((n, 50), "float32"), Y: T.Tensor((n, 50), "float32")):
        mean = T.alloc_global((n,), "float32")
        scale = T.alloc_global((n,), "float32")
        statistics(X, mean, scale, n)
        with T.Kernel(n, threads=64) as b:
            S = T.alloc_shared((50,), "float32")
            T.copy(X[b, :], S)
            for j in T.Parallel(50):
                Y[b, j] = (S[j] - mean[b]) * scale[b]

    x = randn(rows, 50)
    return run(main, x, out(torch.nn.functional.layer_norm(x, (50,)), rtol=1e-4, atol=1e-4))
