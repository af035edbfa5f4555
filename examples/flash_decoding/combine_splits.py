# SPDX-License-Identifier: Apache-2.0
"""The second launch of split decoding: merges the partial results of a head. Shared by the kernels of this folder."""

from __future__ import annotations

from typing import Any

import tilelang.language as T


def make_combine(batch: int, heads: int, num_split: int, dim: int, dtype: str, threads: int = 128) -> Any:
    """A macro (lse_split, partial, Output) of one launch.

    lse_split (batch, heads, num_split) holds base-2 logarithms of the sums, -infinity for a split without keys; partial
    (batch, heads, num_split, dim) the normalised results. A head without keys gives 0.
    """

    @T.macro
    def combine(
        lse_split: T.Tensor((batch, heads, num_split), "float32"),
        partial: T.Tensor((batch, heads, num_split, dim), "float32"),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(heads, batch, threads=threads) as (by, bz):
            po_local = T.alloc_fragment([dim], "float32")
            o_accum_local = T.alloc_fragment([dim], "float32")
            lse_max_local = T.alloc_local([1], "float32")
            lse_logsum_local = T.alloc_local([1], "float32")
            scale_local = T.alloc_local([1], "float32")

            T.clear(o_accum_local)
            lse_logsum_local[0] = 0
            lse_max_local[0] = -(2.0**100)  # finite: all splits may be empty
            for k in T.serial(num_split):
                lse_max_local[0] = T.max(lse_max_local[0], lse_split[bz, by, k])
            for k in T.serial(num_split):
                lse_logsum_local[0] += T.exp2(lse_split[bz, by, k] - lse_max_local[0])
            for k in T.serial(num_split):
                for i in T.Parallel(dim):
                    po_local[i] = partial[bz, by, k, i]
                scale_local[0] = T.exp2(lse_split[bz, by, k] - lse_max_local[0])
                for i in T.Parallel(dim):
                    o_accum_local[i] += po_local[i] * scale_local[0]
            for i in T.Parallel(dim):
                Output[bz, by, i] = T.if_then_else(lse_logsum_local[0] > 0, o_accum_local[i] / lse_logsum_local[0], 0)

    return combine


def splits_for(blocks: int, tiles: int, processors: int) -> int:
    """The fewest splits that give every processor a block, if there are tiles enough."""
    return max(1, min(tiles, -(-processors // blocks)))
