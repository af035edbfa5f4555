# SPDX-License-Identifier: Apache-2.0
"""T.copy between all memories: regions, edges, types, alignment, strides, padding."""

from __future__ import annotations

from functools import partial

import torch
from witness import EVERYWHERE, changed, ints, out, program, randn, refused, run

import tilelang.language as T

program = partial(program, devices=EVERYWHERE)


@program(column=(0, 1, 4, 31), dtype=("int32", "int8", "float16"))
def store_at_a_column(column, dtype):
    """A tile is stored at a column of any alignment, and nothing beside it."""

    @T.prim_func
    def main(A: T.Tensor((32, 32), dtype), B: T.Tensor((40, 64), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 32), dtype)
            T.copy(A, S)
            T.copy(S, B[3:35, column : column + 32])

    a, b = ints(32, 32, dtype=dtype), torch.full((40, 64), 99).to(getattr(torch, dtype))
    want = b.clone()
    want[3:35, column : column + 32] = a
    return run(main, a, changed(b, want))


@program(column=(1, 8, 31), dtype=("float16", "float32"))
def load_from_a_column(column, dtype):
    """A tile is loaded from a column of any alignment."""

    @T.prim_func
    def main(A: T.Tensor((40, 64), dtype), B: T.Tensor((32, 32), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 32), dtype)
            T.copy(A[5, column], S)
            T.copy(S, B)

    a = randn(40, 64, dtype=dtype)
    return run(main, a, out(a[5:37, column : column + 32]))


@program(N=(256, 1000, 4096), dtype=("bfloat16", "float32"), shape=("row", "tile", "stack"))
def rows_of_any_length_in_a_pipeline(N, dtype, shape):
    """Whole rows pass through a ring of shared memory, also those that are longer than a box of the copy engine."""

    @T.prim_func
    def main(A: T.Tensor((6, N), dtype), B: T.Tensor((6, N), dtype)):
        with T.Kernel(2, threads=64) as bx:
            S = T.alloc_shared({"row": (N,), "tile": (1, N), "stack": (1, 1, N)}[shape], dtype)
            x = T.alloc_fragment((N,), "float32")
            for r in T.Pipelined(3, num_stages=2):
                T.copy(A[r * 2 + bx, 0], S)
                T.copy(S, x)
                for j in T.Parallel(N):
                    x[j] = x[j] * 2
                T.copy(x, B[r * 2 + bx, 0])

    a = ints(6, N, dtype=dtype)
    return run(main, a, out(a * 2))


@program(N=(60, 65, 72), dtype=("float16", "int8"))
def row_pitch_of_any_width(N, dtype):
    """The rows of a tensor need not begin at multiples of 16 bytes."""

    @T.prim_func
    def main(A: T.Tensor((50, N), dtype), B: T.Tensor((50, N), dtype)):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(50, 32), threads=64) as (bx, by):
            S = T.alloc_shared((32, 32), dtype)
            T.copy(A[by * 32, bx * 32], S)
            for i, j in T.Parallel(32, 32):
                S[i, j] = S[i, j] + S[i, j]
            T.copy(S, B[by * 32, bx * 32])

    a = ints(50, N, dtype=dtype)
    return run(main, a, out(a + a))


@program(pad=(1, 4, 8), dtype=("float32", "float16"))
def tile_with_padding(pad, dtype):
    """Only the part of a shared tile that is no padding is copied in and out."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), dtype), B: T.Tensor((32, 64), dtype), R: T.Tensor((64, 32), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64 + pad), dtype)
            T.copy(A, S[0:32, 0:64])
            T.copy(S[0:32, 0:64], B)
            for j, i in T.Parallel(64, 32):
                R[j, i] = S[i, j]

    a = randn(32, 64, dtype=dtype)
    return run(main, a, out(a), out(a.t()))


@program()
def quarters_of_a_shared_tile():
    """Slices of one shared tile are loaded, moved onto each other and stored."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), B: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((32, 64), "float16")
            T.copy(A[0:16, 0:32], S[16:32, 32:64])
            T.copy(A[16:32, 32:64], S[0:16, 0:32])
            T.copy(A[0:16, 32:64], S[0:16, 32:64])
            T.copy(S[0:16, 32:64], S[16:32, 0:32])
            T.copy(S, B)

    a = randn(32, 64, dtype="float16")
    want = torch.empty_like(a)
    want[16:, 32:], want[:16, :32] = a[:16, :32], a[16:, 32:]
    want[:16, 32:] = want[16:, :32] = a[:16, 32:]
    return run(main, a, out(want))


@program(value=(None, -99, 3))
def outside_reads_the_safe_value(value):
    """What a copy reads outside the tensor is 0, or what `annotate_safe_value` says."""

    @T.prim_func
    def main(A: T.Tensor((20, 28), "int32"), O: T.Tensor((32, 32), "int32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 32), "int32")
            if value is not None:
                T.annotate_safe_value({A: value})
            T.copy(A[0:32, 0:32], S)
            T.copy(S, O)

    a = ints(20, 28)
    want = torch.full((32, 32), value or 0, dtype=torch.int32)
    want[:20, :28] = a
    return run(main, a, out(want))


@program(dtype=("float16", "float32"), through=("shared", "fragment"))
def ragged_edge_on_both_sides(dtype, through):
    """The last tile of each row and column lies partly outside: zero in, nothing out."""
    alloc = T.alloc_shared if through == "shared" else T.alloc_fragment

    @T.prim_func
    def main(A: T.Tensor((50, 70), dtype), O: T.Tensor((50, 70), dtype)):
        with T.Kernel(T.ceildiv(70, 32), T.ceildiv(50, 32), threads=64) as (bx, by):
            S = alloc((32, 32), dtype)
            T.copy(A[by * 32 : (by + 1) * 32, bx * 32 : (bx + 1) * 32], S)
            T.copy(S, O[by * 32, bx * 32])

    a = randn(50, 70, dtype=dtype)
    return run(main, a, out(a))


@program(pair=(("float32", "float16"), ("float16", "float32"), ("float32", "bfloat16"), ("int8", "int32"),
               ("int32", "float32"), ("float32", "int8"), ("uint8", "float16"), ("bool", "int32")))  # fmt: skip
def copy_that_converts(pair):
    """The two sides of a copy may have different types."""
    src, dst = pair

    @T.prim_func
    def main(A: T.Tensor((24, 40), src), O: T.Tensor((24, 40), dst), P: T.Tensor((24, 40), dst)):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((24, 40), src)
            f = T.alloc_fragment((24, 40), dst)
            T.copy(A, S)
            T.copy(S, f)
            T.copy(f, O)
            T.copy(S, P)

    a = ints(24, 40, low=0, dtype=src)
    want = a.to(getattr(torch, dst))
    return run(main, a, out(want), out(want))


@program()
def missing_extents_come_from_the_other_side():
    """Ranks may differ: extents are matched from the right, what is left is one."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 16, 2, 32), "float32"), O: T.Tensor((2, 16, 32), "float32"), V: T.Tensor((32,), "float32")
    ):
        with T.Kernel(2, threads=64) as h:
            S = T.alloc_shared((16, 32), "float32")
            v = T.alloc_shared((32,), "float32")
            T.copy(A[1, 0:16, h, 0:32], S)
            T.copy(S, O[h, 0, 0])
            if h == 1:
                T.copy(A[2, 5, 1, 0:32], v)
                T.copy(v, V)

    a = randn(3, 16, 2, 32)
    return run(main, a, out(a[1].transpose(0, 1)), out(a[2, 5, 1]))


@program(threads=(32, 48, 128))
def element_to_element(threads):
    """A copy of single elements is an assignment."""

    @T.prim_func
    def main(A: T.Tensor((7, 9), "float32"), O: T.Tensor((9, 7), "float32")):
        with T.Kernel(1, threads=threads):
            for i, j in T.Parallel(7, 9):
                T.copy(A[i, j], O[j, i])

    a = randn(7, 9)
    return run(main, a, out(a.t()))


@program()
def offsets_of_the_call():
    """A tile starts where numbers of 32 and of 64 bits say: before the tensor, in it, behind it."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 13), "int32"), B: T.Tensor((16, 16), "int32"), r: T.int32, c: T.int64):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((16, 16), "int32")
            T.copy(A[r, c], S)
            T.copy(S, B)

    a, border = ints(19, 13), 40
    wide = torch.zeros(19 + 2 * border, 13 + 2 * border, dtype=torch.int32)
    wide[border : border + 19, border : border + 13] = a
    starts = ((0, 0), (-5, -7), (18, 12), (20, 1), (-16, 0), (3, -2))
    return [run(main, a, out(wide[r + border :, c + border :][:16, :16]), r, c) for r, c in starts]


@program()
def slices_from_the_end():
    """Negative indices count from the end, in elements and in slices."""

    @T.prim_func
    def main(A: T.Tensor((40, 48), "float32"), O: T.Tensor((8, 16), "float32"), L: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8, 16), "float32")
            T.copy(A[-8:, -16:], S)
            T.copy(S, O)
            L[0] = A[-1, -1]
            L[1] = S[-2, 3]
            L[-1] = S[0, -16]
            L[-2] = A[-40, -48]

    a = randn(40, 48)
    want = torch.stack([a[-1, -1], a[-2, -13], a[0, 0], a[-8, -16]])
    return run(main, a, out(a[-8:, -16:]), out(want))


@program(spread=("transposed", "wide", "skipping", "shifted"))
def strided_argument(spread):
    """A tensor of any strides and any offset is read in place."""
    s0, s1 = T.dynamic("s0, s1")

    @T.prim_func
    def main(A: T.StridedTensor((32, 48), (s0, s1), "float32"), B: T.Tensor((32, 48), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 48), "float32")
            T.copy(A, S)
            for i, j in T.Parallel(32, 48):
                B[i, j] = A[i, j] + S[i, j]

    a = {
        "transposed": lambda: randn(48, 32).t(),
        "wide": lambda: randn(32, 100)[:, :48],
        "skipping": lambda: randn(64, 96)[::2, ::2],
        "shifted": lambda: randn(33, 49)[1:, 1:],
    }[spread]()
    return run(main, a, out(a * 2))


@program(stride=(48, 50, 64))
def strides_known_in_advance(stride):
    """A stride that is a number, whether it allows the copy engine or not."""

    @T.prim_func
    def main(A: T.StridedTensor((32, 48), (stride, 1), "float16"), B: T.Tensor((32, 48), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 48), "float16")
            T.copy(A, S)
            T.copy(S, B)

    a = randn(32, stride, dtype="float16")[:, :48]
    return run(main, a, out(a))


@program(asked=("tma", "cp_async", "sync"), devices=("cpu", "sim"))
def asked_for_an_instruction(asked):
    """`prefer_instruction` chooses how, never what."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            T.copy(A, S, prefer_instruction=asked)
            for i, j in T.Parallel(64, 64):
                B[j, i] = S[i, j]

    a = randn(64, 64, dtype="float16")
    return run(main, a, out(a.t()))


@program(hint=("evict_first", "evict_normal", "evict_last"))
def hints_and_switches(hint):
    """Cache hints and `disable_tma` change no value."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, threads=128) as b:
            S = T.alloc_shared((32, 64), "float32")
            T.copy(A[b * 32, 0], S, eviction_policy=hint)
            T.copy(S, B[b * 32, 0], disable_tma=True)

    a = randn(64, 64)
    return run(main, a, out(a))


@program(dtype=("float16", "float32", "int8"))
def transpose_of_a_tile(dtype):
    """T.transpose between shared tiles, and a transposed copy by hand."""

    @T.prim_func
    def main(A: T.Tensor((32, 48), dtype), B: T.Tensor((48, 32), dtype), C: T.Tensor((48, 32), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 48), dtype)
            D = T.alloc_shared((48, 32), dtype)
            T.copy(A, S)
            T.transpose(S, D)
            T.copy(D, B)
            for i, j in T.Parallel(32, 48):
                D[j, i] = S[i, j] + S[i, j]
            T.copy(D, C)

    a = ints(32, 48, dtype=dtype)
    return run(main, a, out(a.t()), out(a.t() * 2))


@program()
def slice_beyond_the_end_is_refused():
    """A slice of an on-chip tile that leaves it is an error, never a store over a neighbour."""

    def make():
        @T.prim_func
        def main(O: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                S = T.alloc_shared((8,), "int32")
                T.fill(S[6:12], 7)
                T.copy(S, O)

        return main

    return refused(make, "S", "6", "12", "8")


@program()
def shapes_that_differ_are_refused():
    """Two whole buffers of different shapes are no copy."""

    def make():
        @T.prim_func
        def main(A: T.Tensor((8, 16), "float32")):
            with T.Kernel(1, threads=32):
                S = T.alloc_shared((16, 8), "float32")
                T.copy(A, S)

        return main

    return refused(make, "A", "S")


@program(dtype=("float32", "float64", "int64", "bool", "uint16"))
def one_dimension(dtype):
    """Vectors of an odd length and of each width, through all memories."""

    @T.prim_func
    def main(A: T.Tensor((77,), dtype), O: T.Tensor((77,), dtype)):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((77,), dtype)
            f = T.alloc_fragment((77,), dtype)
            T.copy(A, S)
            T.copy(S, f)
            T.copy(f, O)

    a = ints(77, low=0, dtype=dtype)
    return run(main, a, out(a))


@program()
def fill_and_clear_of_regions():
    """T.fill and T.clear act on slices of shared, fragment and global memory."""

    @T.prim_func
    def main(A: T.Tensor((16, 20), "int32"), O: T.Tensor((16, 20), "int32"), G: T.Tensor((16, 20), "int32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 20), "int32")
            f = T.alloc_fragment((16, 20), "int32")
            T.copy(A, S)
            T.fill(S[2:5, 3:18], -7)
            T.clear(S[15, :])
            T.copy(S, f)
            T.fill(f[8:10, :], 4)
            T.copy(f, O)
            T.fill(G[0:16, 19], 5)

    a, g = ints(16, 20), ints(16, 20)
    want, g_want = a.clone(), g.clone()
    want[2:5, 3:18], want[15], want[8:10], g_want[:, 19] = -7, 0, 4, 5
    return run(main, a, out(want), changed(g, g_want))


@program(number=(-128, -7, 127))
def fill_with_a_negative_byte(number):
    """A constant of a narrow type fills every lane of a packed register."""

    @T.prim_func
    def main(O: T.Tensor((32, 60), "int8"), P: T.Tensor((32, 60), "int16"), Q: T.Tensor((32, 60), "uint8")):
        with T.Kernel(1, threads=96):
            f = T.alloc_fragment((32, 60), "int8")
            g = T.alloc_fragment((32, 60), "int16")
            S = T.alloc_shared((32, 60), "uint8")
            T.fill(f, number)
            T.fill(g, number * 256)
            T.fill(S, number + 128)
            T.copy(f, O)
            T.copy(g, P)
            T.copy(S, Q)

    full = lambda v, d: out(torch.full((32, 60), v, dtype=d))
    return run(main, full(number, torch.int8), full(number * 256, torch.int16), full(number + 128, torch.uint8))
