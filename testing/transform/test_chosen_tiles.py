# SPDX-License-Identifier: Apache-2.0
"""Pipelined loops over tiles that a tensor chooses: behind a guard, or by an index."""

from __future__ import annotations

from typing import Any

import pytest
from outline import SM90, outline
from tvm import tirx

import tilelang.language as T
from tilelang.ir.stmts import launches, shape_of, walk_list
from tilelang.transform.overlap_gemms import overlap_gemms
from tilelang.transform.pipeline import lower
from tilelang.transform.plan_gemms import plan_gemms


def chained(guarded: bool, writes_list: bool = False) -> Any:
    """Two dependent products over tiles of K that `chosen` names."""

    @T.prim_func
    def main(
        K: T.Tensor((512, 64), "float16"),
        chosen: T.Tensor((8,), "int32"),
        O: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Q = T.alloc_shared((64, 64), "float16")
            Ks = T.alloc_shared((64, 64), "float16")
            Vs = T.alloc_shared((64, 64), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(K[0:64, :], Q)
            T.clear(acc)
            for k in T.Pipelined(8, num_stages=2):
                tile = chosen[k]
                if guarded:
                    if tile >= 0:
                        T.copy(K[tile * 64 : tile * 64 + 64, :], Ks)
                        T.gemm(Q, Ks, S, transpose_B=True, clear_accum=True)
                        T.copy(S, P)
                        T.copy(K[tile * 64 : tile * 64 + 64, :], Vs)
                        T.gemm(P, Vs, acc)
                else:
                    T.copy(K[tile * 64 : tile * 64 + 64, :], Ks)
                    T.gemm(Q, Ks, S, transpose_B=True, clear_accum=True)
                    T.copy(S, P)
                    T.copy(K[tile * 64 : tile * 64 + 64, :], Vs)
                    T.gemm(P, Vs, acc)
            if writes_list:
                chosen[0] = 1
            T.copy(acc, O)

    return main


def test_a_branch_in_a_pipelined_loop_is_as_deep_as_the_loop() -> None:
    (kernel,) = launches(lower(chained(guarded=True), SM90, stop_after="scheduled"))
    shapes = {s.buffer.name: shape_of(s.buffer) for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer)}
    assert shapes["Ks"] == (2, 64, 64) and shapes["Vs"] == (2, 64, 64)
    assert shapes["Q"] == (1, 64, 64)


@pytest.mark.parametrize("writes_list", [False, True])
def test_an_index_out_of_a_tensor_that_the_kernel_writes_keeps_gemms_in_place(writes_list: bool) -> None:
    """The moved gemm reads the index of its own iteration again."""
    planned = plan_gemms(chained(guarded=False, writes_list=writes_list), SM90)
    got = outline(overlap_gemms(planned))
    assert any(line.startswith("for 1..") for line in got) != writes_list
