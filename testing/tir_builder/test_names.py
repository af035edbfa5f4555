# SPDX-License-Identifier: Apache-2.0
"""What assignment means: immutable bindings, variables, Python values, tuples; and where names live."""

from __future__ import annotations

import re

import pytest
from user_programs import body

import tilelang.language as T
from tilelang.tir_builder import errors


def test_expressions_are_bound_once_inside_the_launch():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), n: T.int32):
        m = n + 1
        with T.Kernel(m, threads=32) as b:
            x = A[b] * 2
            y = x
            three = 3
            A[b] = x + y + three

    text = body(main)
    assert 'T.launch_thread("blockIdx.x", n + 1)' in text
    assert "x: T.let[T.float32] = A[b] * T.float32(2.0)" in text
    assert "A[b] = x + x + T.float32(3.0)" in text


def test_variables_are_stored_to():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_var("float32", 1)
            y = x
            x = A[0]
            x += 1
            A[1] = x + y

    text = body(main)
    assert "x[0] = T.float32(1.0)" in text
    assert "y: T.let[T.float32] = x[0]" in text
    assert "x[0] = A[0]" in text
    assert "x[0] = x[0] + T.float32(1.0)" in text
    assert "A[1] = x[0] + y" in text


def test_swap_reads_before_it_writes():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            A[0], A[1] = A[1], A[0]
            x, y = T.alloc_var("float32", 1), T.alloc_var("float32", 2)
            x, y = y, x
            (p, q), r = (x, 1), A[2]
            A[3] = p + q + r

    lines = [line.strip() for line in body(main).split("\n")]
    first = next(i for i, line in enumerate(lines) if line.endswith("= A[1]"))
    assert lines[first + 1].endswith("= A[0]")
    assert lines[first + 2].startswith("A[0] = ") and "A[1]" not in lines[first + 2]
    swap = next(
        i for i, line in enumerate(lines) if line.startswith("x[0] = ") and "2.0" not in line and "1.0" not in line
    )
    assert re.fullmatch(r"x\[0\] = x\w*", lines[swap]) and re.fullmatch(r"y\[0\] = y\w*", lines[swap + 1])


def test_names_are_unique_in_the_function():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.serial(2):
                S = T.alloc_shared((8,), "float32")
                S[i] = A[i]
            for i in T.serial(2):
                S = T.alloc_shared(8, "float32")
                S[i] = A[i]

    text = body(main)
    assert "S = T.alloc" in text and "S_1 = T.alloc" in text and "for i_1 in" in text


def test_negative_and_partial_indices():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(4, threads=32) as b:
            S = T.alloc_shared((8,), "float32")
            T.copy(A[b], S)
            T.copy(A[b, 0:8], S[...])
            T.copy(S, A[-1, :])
            S[0:4] = 1
            B[b, :] = A[b, :]
            S[-1] = S[1]

    text = body(main)
    assert text.count("[A[b, 0:8], S[0:8]]") == 2
    assert "[S[0:8], A[3, 0:8]]" in text
    assert "T.tl_tile_fill(S[0:4], T.float32(1.0))" in text
    assert "[A[b, 0:8], B[b, 0:8]]" in text
    assert "S[7] = S[1]" in text


def test_typed_binding_and_casts():
    @T.prim_func
    def main(A: T.Tensor((8,), "int8"), F: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=32):
            x: T.int64 = A[0]
            note: whatever = 3  # noqa: F821
            F[0] = T.float32(x) + T.cast(A[1], "float32") + note
            F[1] = T.float16(1)
            A[2] = T.int8(F[2])

    text = body(main)
    assert 'x: T.let[T.int64] = T.Cast("int64", A[0])' in text
    assert 'F[0] = T.Cast("float16", T.Cast("float32", x) + T.Cast("float32", A[1]) + T.float32(3.0))' in text
    assert 'A[2] = T.Cast("int8", F[2])' in text


def test_division():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            A[0] = A[1] / n
            A[n // 2] = A[n % 3] // 2
            A[2] = A[3] ** 2 + n**2

    text = body(main)
    assert 'A[0] = A[1] / T.Cast("float32", n)' in text
    assert "A[n // 2] = " in text and "fmod(A[n % 3], T.float32(2.0))" in text
    assert "A[3] * A[3]" in text and "n * n" in text


def test_a_name_of_a_closed_block_is_gone():
    with pytest.raises(errors.OutOfScope, match="x is used outside the block"):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32"), n: T.int32):
            with T.Kernel(1, threads=32):
                if n > 0:
                    x = A[0]
                A[1] = x


def test_a_name_bound_anew_in_a_branch_is_stale():
    with pytest.raises(errors.AssignedInBranch):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32"), n: T.int32):
            with T.Kernel(1, threads=32):
                count = 0
                if n > 0:
                    count = 1
                A[1] = count


def test_a_binding_carried_by_a_loop_is_refused():
    with pytest.raises(errors.LoopCarriedName):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                total = 0.0
                for i in T.serial(8):
                    total = total + A[i]
                A[0] = total


def test_rebinding_in_the_same_block_is_fine():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = A[0]
            x = x + 1
            for i in T.serial(8):
                y = x * 2
                y = y + 1
                A[i] = y
            for flag in (True, False):
                x = x * 2 if flag else x
            A[1] = x

    text = body(main)
    assert "x_1: T.let[T.float32] = x + T.float32(1.0)" in text
    assert "A[1] = x_2" in text


def test_python_choices_do_not_open_blocks():
    for flag in (True, False):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                if flag:  # noqa: B023
                    x = A[0]
                else:
                    x = A[1]
                A[2] = x

        assert "A[2] = x" in body(main)


def test_a_while_condition_reads_in_every_iteration():
    with pytest.raises(errors.LoopCarriedName):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                x = A[0] + 1
                while x > 0:
                    x = A[1] + 2


def test_containers_of_the_block_itself_may_change():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            tiles = [None, None]
            tiles[0] = T.alloc_fragment((8,), "float32")
            T.clear(tiles[0])
            for i in T.serial(4):
                pair = [0, 0]
                pair[1] = A[i]
                A[i + 4] = pair[1]

    assert "A[i + 4] = value" in body(main)


def test_elements_of_lists_are_read_when_the_list_is_made():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            old = [A[0], A[1]]
            A[0] = 0
            old[1] = A[2]
            A[2] = 0
            for x in (A[3], A[4]):
                A[4] = x
            A[5] = old[0] + old[1]

    text = body(main)
    assert "A[5] = old + value" in text
    assert text.index("value_2: ") < text.index("A[4] = value_1")


def test_a_name_may_take_another_tile_where_no_copy_can_be_meant():
    @T.macro
    def doubled(x):
        y = T.alloc_fragment((8,), "float32")
        for i in T.Parallel(8):
            y[i] = x[i] * 2.0
        return y

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((8,), "float32")
            T.copy(A, x)
            x = doubled(x)
            A = T.view(A, (2, 4))
            for source in [A, B]:
                tile = source
                tile = T.view(tile, (8,))
                T.copy(x, tile)
            first, second = T.alloc_shared((8,), "float32"), T.alloc_shared((8,), "float32")
            first, second = second, first
            alias = first
            alias = second
            T.copy(alias, B)

    text = body(main)
    assert text.count("tl.tile.copy") == 4


@pytest.mark.parametrize("value", ["A", "A[0:8]", "1.0", "A[0]"])
def test_a_tensor_parameter_keeps_its_name(value):
    with pytest.raises(errors.TensorRebound) as info:
        rebinds(value)
    assert info.value.fields["name"] == "B"


def rebinds(value):
    """A program that binds the name of its tensor B to one of these."""

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            if value == "A":
                B = A
            elif value == "A[0:8]":
                B = A[0:8]
            elif value == "1.0":
                B = 1.0
            else:
                B = A[0]  # noqa: F841

    return main


def test_what_a_tuple_allocates_has_the_names_of_the_targets():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            full, free = T.alloc_barrier(32), T.alloc_barrier(32)
            (tile, row), total = (T.alloc_shared((8,), "float32"), T.alloc_fragment((8,), "float32")), A[0] + 1
            T.barrier_arrive(full)
            T.barrier_arrive(free)
            T.copy(A, tile)
            T.copy(tile, row)
            A[0] = total

    text = body(main)
    for name in ("full", "free", "tile", "row"):
        assert f"{name} = T.alloc_" in text, text
    assert "total: T.let[T.float32] = A[0] + T.float32(1.0)" in text
