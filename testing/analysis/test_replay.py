# SPDX-License-Identifier: Apache-2.0
"""Variables that a producer warp may compute by itself."""

from __future__ import annotations

import tilelang.language as T
from tilelang.analysis.replay import Replay
from tilelang.ir.stmts import launches


def test_a_variable_is_replayed_where_all_that_leads_to_it_is_known_to_each_thread():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(4, threads=64) as block:
            S = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            S[tx] = A[tx]
            walked = T.alloc_var("int32", block)
            by_thread = T.alloc_var("int32", tx)
            from_shared = T.alloc_var("int32", 0)
            from_written = T.alloc_var("int32", 0)
            under_shared = T.alloc_var("int32", 0)
            through = T.alloc_var("int32", 0)
            left_early = T.alloc_var("int32", 0)
            while walked < 40:
                if A[walked] > 0:
                    walked += 2
                else:
                    walked += 1
            from_shared += S[0]
            from_written += B[0]
            if S[1] > 0:
                under_shared += 1
            through = walked + from_shared
            for i in range(4):
                if A[i] > 0:
                    break
                left_early += 1
            B[tx] = walked + by_thread + from_shared + from_written + under_shared + through + left_early

    (kernel,) = launches(main)
    assert {v.name for v in Replay(kernel).variables} == {"walked"}
