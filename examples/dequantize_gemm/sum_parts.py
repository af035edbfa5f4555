# SPDX-License-Identifier: Apache-2.0
"""The second launch of a product in parts of K: adds them up. Shared by the kernels of this folder."""

from __future__ import annotations

from typing import Any

import tilelang.language as T

SUM_M, SUM_N = 8, 256  # tile of a block


def make_sum(split_k: int, M: int, N: int, dtype: str) -> Any:
    """A macro (parts, C) of one launch: parts (split_k, M, N) in float32, added up in their order into C (M, N)."""

    @T.macro
    def sum_parts(parts: T.Tensor((split_k, M, N), "float32"), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, SUM_N), T.ceildiv(M, SUM_M), threads=128) as (bx, by):
            part_local = T.alloc_fragment((SUM_M, SUM_N), "float32")
            sum_local = T.alloc_fragment((SUM_M, SUM_N), "float32")
            T.copy(parts[0, by * SUM_M, bx * SUM_N], sum_local)
            for s in T.serial(1, split_k):
                T.copy(parts[s, by * SUM_M, bx * SUM_N], part_local)
                for i, j in T.Parallel(SUM_M, SUM_N):
                    sum_local[i, j] += part_local[i, j]
            T.copy(sum_local, C[by * SUM_M, bx * SUM_N])

    return sum_parts
