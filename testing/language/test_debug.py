# SPDX-License-Identifier: Apache-2.0
"""Printing, assertions and workspaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agree import agree, on_device

import tilelang
import tilelang.language as T
from tilelang.sim import SimError


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_values_and_buffers_are_printed(capfd, target):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(2, threads=32) as b:
            tx = T.get_thread_binding()
            F = T.alloc_fragment((4,), "float32")
            T.copy(A, F)
            if tx == 3:
                T.print(A[0] + 1.0, msg="100% x")
            T.print(F, msg="tile")
            if tx == 0:
                T.print(msg="done")
            if tx == 1:
                T.print("50%")
            for i in T.Parallel(4):
                if A[i] == 3.0:
                    T.print(i + 2, msg="found")

    tilelang.compile(main, target=target)(torch.arange(4.0))
    lines = capfd.readouterr().out.splitlines()
    assert "block (1, 0, 0), thread (3, 0, 0): 100% x: 1.000000" in lines
    assert "block (0, 0, 0), thread (0, 0, 0): tile: F[2] = 2.000000" in lines
    assert "block (1, 0, 0), thread (0, 0, 0): done" in lines
    assert "block (1, 0, 0), thread (1, 0, 0): 50%" in lines
    assert sum("): found: 5" in line for line in lines) == 2


def test_a_failed_assertion_stops_the_kernel():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                T.device_assert(A[i] < 50, "small numbers only")

    agree(main, np.arange(50, dtype="int32").repeat(2)[:64])
    with pytest.raises(SimError, match="small numbers only"):
        on_device(main, np.arange(64, dtype="int32"))


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_a_workspace_is_made_at_each_call(target):
    @tilelang.jit(out_idx=[-1], target=target)
    def make(n):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32"), O: T.Tensor((n,), "float32")):
            W = T.alloc_global((n,), "float32")
            with T.Kernel(2, threads=64) as b:
                for i in T.Parallel(n // 2):
                    W[b * (n // 2) + i] = A[b * (n // 2) + i] * 2.0
            with T.Kernel(1, threads=64):
                for i in T.Parallel(n):
                    O[i] = W[n - 1 - i]

        return main

    kernel = make(128)
    a = torch.randn(128)
    torch.testing.assert_close(kernel(a), (2 * a).flip(0))
    assert kernel.out_idx == [1] and len(kernel.params) == 2


def test_a_workspace_without_outputs():
    @tilelang.jit(target="cpu")
    def add(A, B):
        n = T.const("n")
        A: T.Tensor((n,), "float32")
        B: T.Tensor((n,), "float32")
        W = T.alloc_global((n,), "float32")
        with T.Kernel(1, threads=64):
            for i in T.Parallel(n):
                W[i] = A[i] + 1.0
        with T.Kernel(1, threads=64):
            for i in T.Parallel(n):
                B[i] = W[i] * 2.0

    a, b = torch.randn(64), torch.zeros(64)
    assert add(a, b) is None
    torch.testing.assert_close(b, (a + 1) * 2)
