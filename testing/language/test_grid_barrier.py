# SPDX-License-Identifier: Apache-2.0
"""Barriers of all blocks of a grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agree import agree

import tilelang
import tilelang.language as T
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower


def rounds(count):
    """Sums over all elements by doubling: every round reads what other blocks wrote in the one before."""

    @T.prim_func
    def main(A: T.Tensor((2, 256), "int32")):
        with T.Kernel(4, 2, threads=32) as (bx, by):
            tx = T.get_thread_binding()
            at = (by * 4 + bx) * 32 + tx
            for k in T.serial(count):
                A[(k + 1) % 2, at] = A[k % 2, at] + A[k % 2, (at + T.shift_left(1, k)) % 256]
                T.sync_grid()

    return main


@pytest.mark.parametrize("count", [1, 8])
def test_rounds_of_barriers(count):
    a = np.zeros((2, 256), "int32")
    a[0] = np.arange(256)
    (got,) = agree(rounds(count), a, cpu=False)
    want = np.arange(256)
    for k in range(count):
        want = want + np.roll(want, -(1 << k))
    np.testing.assert_array_equal(got[count % 2], want)


def test_the_text_has_no_header_of_cooperative_groups():
    source = lower_to_cuda(lower(rounds(2), "sm_90a"), ARCHS["sm_90a"])
    assert "cooperative_groups" not in source.text and "nv/target" not in source.text
    assert source.kernels[0].cooperative


@pytest.mark.gpu
@pytest.mark.parametrize("streams", [1, 2])
def test_launches_follow_each_other(streams):
    """Odd numbers of barriers leave the other half of the state; streams have states of their own."""
    kernel = tilelang.compile(rounds(3), target="cuda")
    lanes = [torch.cuda.Stream() for _ in range(streams)]
    for _ in range(5):
        tiles = [torch.zeros(2, 256, dtype=torch.int32, device="cuda") for _ in lanes]
        for t in tiles:
            t[0] = torch.arange(256)
        torch.cuda.synchronize()
        for lane, t in zip(lanes, tiles, strict=True):
            with torch.cuda.stream(lane):
                kernel(t)
        torch.cuda.synchronize()
        want = torch.arange(256)
        for k in range(3):
            want = want + want.roll(-(1 << k))
        assert all(torch.equal(t[1].cpu(), want.int()) for t in tiles)
