# SPDX-License-Identifier: Apache-2.0
"""Which values differ between threads."""

from __future__ import annotations

from tvm import tirx

import tilelang.language as T
from tilelang.analysis.uniform import Divergence
from tilelang.ir.stmts import launches, walk_list


def loops_of(func):
    """Name of each loop variable -> whether it varies between threads."""
    (kernel,) = launches(func)
    varying = Divergence(kernel).varying
    return {s.loop_var.name: s.loop_var in varying for s in walk_list(kernel.body) if isinstance(s, tirx.For)}


def test_a_loop_varies_by_its_own_bounds_not_by_the_branch_around_it():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), N: T.Tensor((64,), "int32")):
        with T.Kernel(4, threads=64) as block:
            tx = T.get_thread_binding()
            if tx < 32:
                for wave in T.serial(2):
                    if wave * 4 + block < 6:
                        A[tx] += wave
            for own in T.serial(N[tx]):
                A[tx] += own

    assert loops_of(main) == {"wave": False, "own": True}
