# SPDX-License-Identifier: Apache-2.0
"""The second launch of split decoding: merges the partial results of a head. Shared by the kernels of this folder."""

from __future__ import annotations

import math
from typing import Any

import tilelang.language as T

LOWEST = -(2.0**100)  # finite: all splits of a head may be empty
MOST_UNROLLED = 64
CLOSE = 0.98
MOST_COLUMNS = 4  # of a thread: one vector of float32
# Blocks that the columns of threads leave. One H200, one sequence of 128 heads of 512 columns in 64 splits, whole call
# (examples/deepseek_mla): 21.1 us with 512 blocks of one column a thread, 24.5 with 128 blocks of vectors.
FEWEST_BLOCKS = 512


def make_combine(batch: int, heads: int, num_split: int, dim: int, dtype: str, threads: int = 128) -> Any:
    """A macro (lse_split, partial, Output) of one launch.

    lse_split (batch, heads, num_split) holds base-2 logarithms of the sums, -infinity for a split without keys; partial
    (batch, heads, num_split, dim) the normalised results. A head without keys gives 0.
    """

    wanted = batch * heads * dim // (FEWEST_BLOCKS * threads)
    a_thread = next(n for n in (MOST_COLUMNS, 2, 1) if n <= max(wanted, 1))
    columns = math.gcd(dim, a_thread * threads)  # of a block
    each = T.unroll if num_split <= MOST_UNROLLED else T.serial  # unrolled, the loads of all splits are in flight

    @T.macro
    def combine(
        lse_split: T.Tensor((batch, heads, num_split), "float32"),
        partial: T.Tensor((batch, heads, num_split, dim), "float32"),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(dim // columns, heads, batch, threads=threads) as (bx, by, bz):
            o_accum_local = T.alloc_fragment([columns], "float32")
            lse_max_local = T.alloc_var("float32", LOWEST)
            lse_logsum_local = T.alloc_var("float32", 0.0)

            T.clear(o_accum_local)
            for k in each(num_split):
                lse_max_local = T.max(lse_max_local, lse_split[bz, by, k])
            for k in each(num_split):
                weight = T.exp2(lse_split[bz, by, k] - lse_max_local)
                lse_logsum_local += weight
                for i in T.Parallel(columns):
                    o_accum_local[i] += partial[bz, by, k, bx * columns + i] * weight
            for i in T.Parallel(columns):
                Output[bz, by, bx * columns + i] = T.if_then_else(
                    lse_logsum_local > 0, o_accum_local[i] / lse_logsum_local, 0
                )

    return combine


def splits_for(blocks: int, tiles: int, slots: int) -> int:
    """How many parts the keys of each of `blocks` blocks are divided into; the device runs `slots` blocks at once.

    At most `tiles`, and as many as one round has room for. What counts is the share of the device's time that is spent:
    blocks and, as every split has a whole number of tiles, tiles may not fill it. Of those that come close to the
    largest share the fewest are chosen. No split is left without tiles.
    """
    shares: dict[int, float] = {}
    for wanted in range(1, max(1, min(tiles, slots // blocks)) + 1):
        splits = -(-tiles // -(-tiles // wanted)) if tiles else 1  # what rounding up leaves
        rounds = splits * blocks / slots
        shares[splits] = rounds / math.ceil(rounds) * (tiles / splits / -(-tiles // splits) if tiles else 1)
    return next(splits for splits, share in sorted(shares.items()) if share >= CLOSE * max(shares.values()))
