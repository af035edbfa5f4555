# SPDX-License-Identifier: Apache-2.0
"""Python in kernels: control flow, assignments, slices, macros, values of the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from witness import changed, ints, out, program, randn, refused, run

import tilelang
import tilelang.language as T


@program(steps=((0, 10, 1), (3, 20, 4), (9, -1, -2), (5, 5, 1)))
def ranges(steps):
    """range and T.serial with a start, a step, backwards, and empty."""
    start, stop, step = steps

    @T.prim_func
    def main(O: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_var("int32", 0)
            t = T.alloc_var("int32", 0)
            for i in range(start, stop, step):
                s = s * 3 + i
            for i in T.serial(start, stop, step):
                t += i + 1
            O[0] = s
            O[1] = t
            O[2] = 7

    s = 0
    for i in range(start, stop, step):
        s = s * 3 + i
    wrapped = (s + 2**31) % 2**32 - 2**31
    return run(main, out(torch.tensor([wrapped, sum(i + 1 for i in range(start, stop, step)), 7]).int()))


@program()
def while_with_break_and_continue():
    """Loops that end when data says so: the length of a Collatz sequence for each thread."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32"), P: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            n = T.alloc_var("int32", A[tx])
            count = T.alloc_var("int32", 0)
            odd = T.alloc_var("int32", 0)
            while n != 1:
                count += 1
                if count > 40:
                    break
                if n % 2 == 0:
                    n = n // 2
                    continue
                odd += 1
                n = 3 * n + 1
            O[tx] = count
            P[tx] = odd

    def collatz(n):
        count = odd = 0
        while n != 1:
            count += 1
            if count > 40:
                break
            if n % 2 == 0:
                n //= 2
                continue
            odd += 1
            n = 3 * n + 1
        return count, odd

    a = torch.arange(1, 65).int()
    counts = torch.tensor([collatz(int(n)) for n in a]).int()
    return run(main, a, out(counts[:, 0]), out(counts[:, 1]))


@program()
def nested_loops_that_end_early():
    """A break leaves the innermost loop alone."""

    @T.prim_func
    def main(A: T.Tensor((8, 8), "int32"), O: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.serial(8):
                s = T.alloc_var("int32", 0)
                for j in T.serial(8):
                    if A[i, j] > 5:
                        break
                    if A[i, j] < -5:
                        continue
                    s += A[i, j]
                if i == 6:
                    break
                O[i] = s

    a = ints(8, 8)
    want = torch.full((8,), -1).int()
    for i in range(6):
        s = 0
        for v in a[i].tolist():
            if v > 5:
                break
            s += v if v >= -5 else 0
        want[i] = s
    return run(main, a, changed(torch.full((8,), -1).int(), want))


@program(flag=(True, False))
def decided_while_tracing(flag):
    """Branches, ternaries and loops over Python values are Python; the branch not taken may be nonsense."""
    table = [3, 1, 4, 1, 5]
    names = {"a": 1, "b": 2}

    @T.prim_func
    def main(A: T.Tensor((5,), "int32"), O: T.Tensor((5,), "int32")):
        with T.Kernel(1, threads=32):
            for k, v in enumerate(table):
                if flag and k % 2 == 0:
                    O[k] = A[k] * v
                elif flag:
                    O[k] = A[k] + (v if k > 2 else -v)
                else:
                    O[k] = undefined_name[k] if flag else A[k] - sum(names.values())
            if not flag:
                for key in sorted(names):
                    O[names[key]] = O[names[key]] + len(key)

    a = ints(5)
    want = a.clone()
    for k, v in enumerate(table):
        want[k] = (a[k] * v if k % 2 == 0 else a[k] + (v if k > 2 else -v)) if flag else a[k] - 3 + (k in (1, 2))
    return run(main, a, out(want))


@program()
def several_assignments_at_once():
    """Tuples are assigned after all right sides are read, nested ones as well; chains; swaps of elements."""

    @T.prim_func
    def main(A: T.Tensor((6,), "int32"), O: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx == 0:
                x = T.alloc_var("int32", A[0])
                y = T.alloc_var("int32", A[1])
                z = T.alloc_var("int32", A[2])
                x, y = y, x
                x, (y, z) = z, (x, y)
                O[0] = x
                O[1] = y
                O[2] = z
                O[3], O[4], O[5] = A[3], A[4], A[5]
                O[3], O[5] = O[5], O[3]
                x = y = 7
                O[4] += x + y

    a = ints(6)
    p, q, r = (int(v) for v in a[:3])
    want = torch.tensor([r, q, p, int(a[5]), int(a[4]) + 14, int(a[3])]).int()
    return run(main, a, out(want))


@program()
def conditions_of_every_kind():
    """and, or, not, chains and ternaries over device values, mixed with Python's."""
    enabled = True

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                v = A[i]
                O[i] = (
                    (1 if v > 3 else 2)
                    if enabled and (v > 0 or i % 2 == 0)
                    else (3 if -4 <= v < 0 and not i > 40 else 4)
                )

    a, i = ints(64), torch.arange(64)
    want = torch.where(
        (a > 0) | (i % 2 == 0), torch.where(a > 3, 1, 2), torch.where((a >= -4) & (a < 0) & (i <= 40), 3, 4)
    )
    return run(main, a, out(want.int()))


@program()
def slices_stand_for_tiles():
    """A slice bound to a name is a tile; negative bounds count from the end."""

    @T.prim_func
    def main(A: T.Tensor((24, 40), "float32"), O: T.Tensor((24, 40), "float32")):
        with T.Kernel(2, threads=64) as b:
            S = T.alloc_shared((12, 40), "float32")
            mine = A[b * 12 : (b + 1) * 12, :]
            theirs = O[b * 12 : (b + 1) * 12, 0:40]
            T.copy(mine, S)
            T.fill(S[:, -8:], 0.0)
            T.fill(S[-1, :5], 9.0)
            T.copy(S, theirs)

    a = randn(24, 40)
    want = a.clone()
    want[:, -8:] = 0
    want[11, :5] = want[23, :5] = 9
    return run(main, a, out(want))


@program()
def macros_with_references():
    """T.Ref arguments are changed in place: variables, elements of buffers."""

    @T.macro
    def bump(x: T.Ref, by):
        x = x * 2 + by

    @T.macro
    def order(x: T.Ref, y: T.Ref):
        if x > y:
            x, y = y, x

    @T.prim_func
    def main(A: T.Tensor((32, 2), "int32"), O: T.Tensor((32, 3), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            v = T.alloc_var("int32", A[tx, 0])
            w = T.alloc_local((2,), "int32")
            bump(v, A[tx, 1])
            bump(v, 1)
            O[tx, 0] = v
            w[0] = A[tx, 0]
            w[1] = A[tx, 1]
            order(w[0], w[1])
            O[tx, 1] = w[0]
            O[tx, 2] = w[1]

    a = ints(32, 2)
    want = torch.stack([(a[:, 0] * 2 + a[:, 1]) * 2 + 1, a.amin(1), a.amax(1)], 1)
    return run(main, a, out(want.int()))


@program()
def macros_in_macros():
    """Macros return values and tuples, call each other, are passed as values, and allocate tiles of their own."""

    @T.macro
    def scaled(tile, factor):
        for i, j in T.Parallel(*tile.shape):
            tile[i, j] = tile[i, j] * factor

    @T.macro
    def loaded(source, row, transform):
        tile = T.alloc_fragment((8, 24), "float32")
        T.copy(source[row, 0], tile)
        transform(tile, 2.0)
        return tile

    @T.macro
    def low_and_high(tile):
        low = T.alloc_fragment((8,), "float32")
        high = T.alloc_fragment((8,), "float32")
        T.reduce_min(tile, low, dim=1)
        T.reduce_max(tile, high, dim=1)
        return low, high

    @T.prim_func
    def main(A: T.Tensor((16, 24), "float32"), L: T.Tensor((16,), "float32"), H: T.Tensor((16,), "float32")):
        with T.Kernel(2, threads=64) as b:
            tile = loaded(A, b * 8, scaled)
            low, high = low_and_high(tile)
            T.copy(low, L[b * 8 : b * 8 + 8])
            T.copy(high, H[b * 8 : b * 8 + 8])

    a = randn(16, 24)
    return run(main, a, out(2 * a.amin(1)), out(2 * a.amax(1)))


@program()
def kernels_in_macros():
    """A macro may hold a launch; it is used twice."""

    @T.macro
    def double(source, target, n):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            for i in T.Parallel(32):
                if b * 32 + i < n:
                    target[b * 32 + i] = source[b * 32 + i] * 2

    @T.prim_func
    def main(A: T.Tensor((50,), "int32"), B: T.Tensor((50,), "int32"), O: T.Tensor((50,), "int32")):
        double(A, B, 50)
        double(B, O, 50)

    a = ints(50)
    return run(main, a, out(a * 2), out(a * 4))


@dataclass(frozen=True)
class Config:
    rows: int
    scale: float
    dtype: str = "float32"


@program(config=(Config(4, 0.5), Config(9, 3.0, "float16")))
def values_of_the_host(config):
    """Dataclasses, closures and helper functions that give expressions."""

    def polynomial(x, *factors):
        total = factors[0]
        for f in factors[1:]:
            total = total * x + f
        return total

    pick = lambda i, j: i * 3 + j if config.rows > 5 else i + j

    @T.prim_func
    def main(A: T.Tensor((config.rows, 20), config.dtype), O: T.Tensor((config.rows, 20), "float32")):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(config.rows, 20):
                x = T.cast(A[i, j], "float32") * config.scale
                O[i, j] = polynomial(x, 1.0, -2.0, 0.5) + pick(i, j)

    a = ints(config.rows, 20, dtype=config.dtype)
    x = a.float() * config.scale
    i, j = torch.arange(config.rows).view(-1, 1), torch.arange(20)
    return run(main, a, out((x - 2) * x + 0.5 + (i * 3 + j if config.rows > 5 else i + j)))


@program()
def keyword_arguments():
    """Parameters behind a star."""

    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), *, O: T.Tensor((40,), "float32"), factor: T.float32):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(40):
                O[i] = A[i] * factor

    a = randn(40)
    return run(main, a, out(a * 2.5), 2.5)


@program()
def variables_of_every_type():
    """alloc_var of bool, int and float, with and without a first value, in loops and branches."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((3,), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx == 0:
                seen = T.alloc_var("bool", False)
                best = T.alloc_var("float32", -T.infinity("float32"))
                at = T.alloc_var("int64", init=-1)
                for i in T.serial(64):
                    if A[i] > best:
                        best = A[i]
                        at = i
                    seen = seen or A[i] > 2.0
                O[0] = best
                O[1] = T.cast(at, "float32")
                O[2] = 1.0 if seen else 0.0

    a = randn(64)
    return run(main, a, out(torch.tensor([a.max(), float(a.argmax()), float((a > 2).any())])))


@program(loop=("unroll", "vectorized", "serial"))
def kinds_of_loops(loop):
    """T.unroll, T.vectorized and T.serial compute the same."""

    @T.prim_func
    def main(A: T.Tensor((32, 4), "float32"), O: T.Tensor((32, 4), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            v = T.alloc_local((4,), "float32")
            for k in getattr(T, loop)(4):
                v[k] = A[tx, k]
            for k in getattr(T, loop)(4):
                O[tx, k] = v[k] * 2.0 + A[tx, 3 - k] if loop != "vectorized" else v[k] * 2.0

    a = randn(32, 4)
    return run(main, a, out(a * 2 + (a.flip(1) if loop != "vectorized" else 0)))


@program()
def assertions_and_assumptions():
    """T.assume, T.device_assert and assert on what holds change nothing."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), O: T.Tensor((n,), "int32"), shift: T.int32):
        T.assume(n % 4 == 0)
        assert n > 0
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            T.assume(shift >= 0)
            for i in T.Parallel(32):
                if b * 32 + i < n:
                    T.device_assert(A[b * 32 + i] > -100, "too small")
                    O[b * 32 + i] = A[b * 32 + i] << shift

    a = ints(60)
    return run(main, a, out(a << 3), 3)


@program()
def lists_of_tiles():
    """Tiles in Python lists and dictionaries, made and used by comprehensions."""

    @T.prim_func
    def main(A: T.Tensor((3, 16, 8), "float32"), O: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=64):
            tiles = [T.alloc_shared((16, 8), "float32") for _ in range(3)]
            for k, tile in enumerate(tiles):
                T.copy(A[k, :, :], tile)
            by_name = {"first": tiles[0], "last": tiles[-1]}
            for i, j in T.Parallel(16, 8):
                O[i, j] = by_name["first"][i, j] - by_name["last"][i, j] * tiles[1][15 - i, j]

    a = ints(3, 16, 8, dtype="float32")
    return run(main, a, out(a[0] - a[2] * a[1].flip(0)))


@program()
def names_that_would_mislead_are_refused():
    """A name bound in a device branch has no value behind it."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                if A[0] > 0:
                    x = A[1]
                A[2] = x

        return main

    return refused(make, "x")


# The eager style: one function, sizes from its arguments.


@tilelang.jit
def scaled_sum(A, B, factor: float = 2.0, block: int = 32):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    B: T.Tensor((M, N), "float32")
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, block), threads=96) as b:
        for i, j in T.Parallel(block, N):
            if b * block + i < M:
                C[b * block + i, j] = A[b * block + i, j] + B[b * block + i, j] * factor
    return C


@tilelang.jit
def row_stats(A: T.Tensor[(T.dynamic("rows"), 24), T.float32]):
    rows = A.shape[0]
    S = T.empty(rows, dtype="float32")
    X = T.empty((rows,), "float32")
    with T.Kernel(rows, threads=32) as b:
        a = T.alloc_fragment((1, 24), "float32")
        s = T.alloc_fragment((1,), "float32")
        T.copy(A[b, 0], a)
        T.reduce_sum(a, s, dim=1)
        T.copy(s, S[b : b + 1])
        T.reduce_max(a, s, dim=1)
        T.copy(s, X[b : b + 1])
    return S, X


@tilelang.jit
def shifted_in_place(A: T.Tensor((T.dynamic("n"),), "int32"), by: T.int32):
    with T.Kernel(T.ceildiv(A.shape[0], 64), threads=64) as b:
        for i in T.Parallel(64):
            if b * 64 + i < A.shape[0]:
                A[b * 64 + i] += by


@program(shape=((40, 8), (5, 3), (1, 1)))
def eager_sizes_from_tensors(shape):
    """T.const takes sizes from the tensors of a call, T.empty makes results."""
    a, b = ints(*shape).float(), ints(*shape).float()
    return [run(scaled_sum, a, b, returns=a + 2 * b), run(scaled_sum, a, b, factor=0.5, block=8, returns=a + b / 2)]


@program()
def eager_with_several_results():
    """Subscript annotations, dynamic rows, two results."""
    runs = []
    for rows in (1, 7, 130):
        a = ints(rows, 24).float()
        runs.append(run(row_stats, a, returns=(a.sum(1), a.amax(1))))
    return runs


@program()
def eager_with_a_number():
    """A number that the call gives, and no result."""
    a = ints(100)
    return run(shifted_in_place, changed(a, a + 5), 5)
