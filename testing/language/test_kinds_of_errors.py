# SPDX-License-Identifier: Apache-2.0
"""Errors have the Python types that programs catch: one small misuse each, from every part of the language."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.tir_builder.errors import JITNoBuilderError


def in_kernel(body, threads=128):
    """Traces a kernel whose body is a macro."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float32"), n: T.int32):
        with T.Kernel(1, threads=threads):
            body(A, B, n)

    return main


def test_functions_and_parameters():
    with pytest.raises(TypeError):

        @T.prim_func
        def positional(A: T.Tensor((4,), "float32"), /): ...

    with pytest.raises(ValueError):

        @T.prim_func
        def bare(A): ...

    with pytest.raises(ValueError):
        T.StridedTensor((4, 4), (1,), "float32")


def test_eager_functions():
    @tilelang.jit(target="cpu")
    def unknown(A):
        N = T.const("N")
        A: T.Tensor((N * 2,), "float32")
        with T.Kernel(1, threads=32):
            A[0] = 0.0

    with pytest.raises(RuntimeError):
        unknown(torch.zeros(4))

    @tilelang.jit(target="cpu")
    def kept(A: T.Tensor((4,), "float32")):
        C = T.empty((4,), "float32")
        with T.Kernel(1, threads=32):
            C[0] = A[0]

    with pytest.raises(RuntimeError):
        kept(torch.zeros(4))


def test_names_outside_of_kernels():
    for misuse in (lambda: T.alloc_shared((4,), "float32"), lambda: T.Kernel(1), lambda: T.const("N")):
        with pytest.raises(JITNoBuilderError):
            misuse()


@T.macro
def stepped_slice(A, B, n):
    T.clear(B[0:64:2, :])


@T.macro
def whole_buffer_update(A, B, n):
    B += 1


class Holder:
    value = 0


@T.macro
def attribute(A, B, n):
    Holder.value = n


@T.macro
def endless(A, B, n):
    while True:
        B[0, 0] = 1.0


@T.macro
def loop_else(A, B, n):
    for i in T.serial(4):
        B[0, i] = 1.0
    else:
        B[0, 0] = 2.0


@T.macro
def buffer_as_condition(A, B, n):
    if B:
        B[0, 0] = 1.0


@T.macro
def no_step(A, B, n):
    for i in T.serial(0, 8, 0):
        B[0, i] = 1.0


@T.macro
def unrolled_twice(A, B, n):
    for i in T.unroll(8, explicit=True, unroll_factor=4):
        B[0, i] = 1.0


@T.macro
def two_values(A, B, n):
    v = T.alloc_var("int32", 1, init=2)
    B[0, 0] = v


@T.macro
def returns_in_a_branch(A, n):
    if n > 1:
        return 1
    return 2


@T.macro
def return_in_a_branch(A, B, n):
    B[0, 0] = returns_in_a_branch(A, n)


@T.macro
def stores(A):
    A[0, 0] = 1.0
    return 1


@T.macro
def macro_in_a_condition(A, B, n):
    if n > 1 and stores(A):
        B[0, 0] = 1.0


@T.macro
def sets(x: T.Ref):
    x = 1


@T.macro
def reference_to_a_value(A, B, n):
    sets(n + 1)


@T.macro
def order_of_the_grid(A, B, n):
    T.use_swizzle(4, order="diagonal")


@T.macro
def no_arrivals(A, B, n):
    T.alloc_barrier(0)


@T.macro
def leaders(A, B, n):
    S = T.alloc_shared((64, 64), "float16")
    bar = T.alloc_barrier(1)
    T.tma_copy(A, S, barrier=bar, leader_scope_threads=33)


@T.macro
def view_of_other_size(A, B, n):
    S = T.alloc_shared((64,), "float32")
    T.view(S, (64,), "float16")


@T.macro
def copy_of_two_shapes(A, B, n):
    S = T.alloc_shared((32, 64), "float16")
    T.copy(A, S)


@T.macro
def layout_of_registers(A, B, n):
    f = T.alloc_fragment((64, 64), "float32")
    T.annotate_layout({f: T.Layout((64, 64), lambda i, j: i * 64 + j)})


@T.macro
def products_that_do_not_fit(A, B, n):
    S = T.alloc_shared((64, 64), "float16")
    R = T.alloc_shared((32, 64), "float16")
    f = T.alloc_fragment((64, 64), "float32")
    T.gemm(S, R, f)


@T.macro
def reduced_shape(A, B, n):
    f = T.alloc_fragment((64, 64), "float32")
    r = T.alloc_fragment((32,), "float32")
    T.reduce_sum(f, r, dim=1)


@T.macro
def scanned_dimension(A, B, n):
    S = T.alloc_shared((64, 64), "float32")
    T.cumsum(S, dim=2)


@T.macro
def bytes_for_dp4a(A, B, n):
    a = T.alloc_local((4,), "float32")
    c = T.alloc_local((1,), "int32")
    T.dp4a(a[0], a[0], c[0])


@T.macro
def memory_order(A, B, n):
    T.atomic_add(B[0, 0], 1.0, memory_order="never")


@T.macro
def old_tile(A, B, n):
    f = T.alloc_fragment((64, 64), "float32")
    T.atomic_add(B, f, return_prev=True)


@T.macro
def registers_of_a_thread(A, B, n):
    T.set_max_nreg(20, True)


@pytest.mark.parametrize(
    "body, kind",
    [
        (stepped_slice, RuntimeError),
        (whole_buffer_update, RuntimeError),
        (attribute, NotImplementedError),
        (endless, RuntimeError),
        (loop_else, (NotImplementedError, RuntimeError)),
        (buffer_as_condition, TypeError),
        (no_step, ValueError),
        (unrolled_twice, ValueError),
        (two_values, TypeError),
        (return_in_a_branch, NotImplementedError),
        (macro_in_a_condition, RuntimeError),
        (reference_to_a_value, ValueError),
        (order_of_the_grid, ValueError),
        (no_arrivals, ValueError),
        (leaders, ValueError),
        (view_of_other_size, AssertionError),
        (copy_of_two_shapes, ValueError),
        (layout_of_registers, AssertionError),
        (products_that_do_not_fit, AssertionError),
        (reduced_shape, ValueError),
        (scanned_dimension, ValueError),
        (bytes_for_dp4a, ValueError),
        (memory_order, ValueError),
        (old_tile, NotImplementedError),
        (registers_of_a_thread, ValueError),
    ],
    ids=lambda x: getattr(x, "__name__", "") if not isinstance(x, type | tuple) else "",
)
def test_in_kernels(body, kind):
    with pytest.raises(kind):
        in_kernel(body)


def test_kernels():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            B[0] = A[0]

    for out_idx in ([5], [1, 1]):
        with pytest.raises(ValueError):
            tilelang.compile(main, out_idx=out_idx, target="cpu")
    kernel = tilelang.compile(main, out_idx=[1], target="cpu")
    with pytest.raises(ValueError):
        kernel(torch.zeros(4), torch.zeros(4), torch.zeros(4))
    with pytest.raises(AssertionError):
        tilelang.compile(lambda x: x, target="cpu")
    with pytest.raises(ValueError):
        in_kernel(one_element, threads=0)


@T.macro
def one_element(A, B, n):
    B[0, 0] = 1.0
