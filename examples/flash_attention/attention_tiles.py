# SPDX-License-Identifier: Apache-2.0
"""Tiles of forward attention by the shape alone: what won searches on an H200."""

from __future__ import annotations

from collections.abc import Sequence

FEW_TILES = 512  # of unequal length: below, small ones that share an SM balance better
SHORT = 1024  # causal: of larger tiles the diagonal would be a large part


def default_tiles(batch: int, heads: int, seq_q: int, dim: int, is_causal: bool) -> tuple[int, int, int, int]:
    """(block_M, block_N, num_stages, threads)."""
    if dim > 128:
        return 128, 80 if is_causal else 64, 2, 256
    if dim > 64:
        return 128, 128, 2, 256
    if is_causal and batch * heads * -(-seq_q // 192) < FEW_TILES:
        return 64, 128, 2, 128
    if is_causal and seq_q <= SHORT:
        return 128, 128, 2, 256
    return 192, 128, 2, 384


def choose_tiles(
    batch: int, heads: int, seq_q: int, dim: int, is_causal: bool, given: Sequence[int | None]
) -> tuple[int, ...]:
    """The default tiles with what is `given` (block_M, block_N, num_stages, threads; None: not given). Rows that are
    given alone bring their threads: a warpgroup for every 64."""
    block_M, _, _, threads = given
    given = (*given[:3], threads if threads or not block_M else max(128, block_M * 2))
    tiles = default_tiles(batch, heads, seq_q, dim, is_causal)
    return tuple(default if choice is None else choice for choice, default in zip(given, tiles, strict=True))
