# SPDX-License-Identifier: Apache-2.0
"""A tile for a matrix product by its shape alone: what a program takes that does not search.

Many rows: the tile that minimises waves * area / efficiency, where the efficiency of a tile is its share of the speed
of the largest (measured on an H200, consistent with the best of 82 hand-written kernels on 17 shapes). Up to 64 rows a
product is bound by reading B once: blocks of 64 columns, whose weights are the rows of wgmma, with as many bytes in
flight as shared memory holds. It knows nothing of epilogues; `tilelang.autotune` searches where a choice must be best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilelang.layout.dtypes import bits_of
from tilelang.target.arch import DEFAULT_CUDA, Arch, arch_of
from tilelang.transform.plan_stages import COMMON_SLOTS

__all__ = ["GemmTile", "gemm_tile", "packed_gemm_tile", "packed_split_k", "split_k_of"]

_STEP_BITS = 1024  # of K in a row of a stage: one swizzled box of 128 bytes
_FEW_ROWS = 64
_FEW_COLUMNS = 64  # of C in a block, whose weights are the rows of wgmma where rows are few
_COLUMN_STEP = 32
# Columns of an SM that make one tile of 64 rows. 64 x 28672 x 4096 over rotating weights: 60.7 us in 448 tiles of 64
# columns, 60.0 in tiles of 128, 59.3 in tiles of 224 (H200, 2026-11).
_WIDE = (128, 256)
_WARPGROUP = 128
_MAX_STAGES = 12  # more do not shorten anything
_MAX_PACKED_STAGES = 20  # stages of packed weights are small
_FEW_STAGES = 3  # with less, every load is waited for
_SLACK_BYTES = 2048  # barriers and alignment


@dataclass(frozen=True)
class GemmTile:
    """Tile sizes in elements, stages of the ring, threads of a block. The defaults are for large products in 16 bit."""

    block_M: int = 128
    block_N: int = 256
    block_K: int = 64
    num_stages: int = 4
    threads: int = 256

    def pinned(self, **given: int | None) -> GemmTile:
        """The tile with what the caller chose."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


# (rows, columns, threads, efficiency): 128 x 64 and its like wait for shared memory.
_TILES = (
    (128, 256, 256, 1.0),
    (256, 128, 256, 1.0),
    (128, 128, 256, 0.87),
    (128, 64, 256, 0.6),
    (64, 128, 128, 0.6),
    (64, 64, 128, 0.45),
)


def gemm_tile(M: Any, N: Any, K: Any, dtype: str = "bfloat16", arch: str | Arch = DEFAULT_CUDA) -> GemmTile:
    """The tile for C (M, N) = A (M, K) @ B (K, N) of operands in `dtype`. Sizes that are no int, as they are not known
    yet, count as large."""
    where, bits = arch_of(arch), bits_of(dtype)
    if not (isinstance(M, int) and isinstance(N, int)):
        return GemmTile(block_K=_STEP_BITS // bits)
    steps = -(-K * bits // _STEP_BITS) if isinstance(K, int) else _MAX_STAGES
    if M <= _FEW_ROWS and where.wgmma:
        return _few_rows(M, N, bits, steps, where)
    rows, columns, threads, _ = min(_TILES, key=lambda tile: (_cost(tile, M, N, where), -tile[0] * tile[1]))
    if where.wgmma and columns == _FEW_COLUMNS and rows >= M and -(-N // columns) <= where.num_sms:
        depth = 2 * _STEP_BITS
        return GemmTile(rows, columns, depth // bits, _streamed_stages(rows, columns, -(-steps // 2), where), threads)
    stage = (rows + columns) * _STEP_BITS // 8
    return GemmTile(rows, columns, _STEP_BITS // bits, _stages(stage, rows, columns, steps, 1, where), threads)


# For weights that are unpacked into registers, which makes them the rows of wgmma: each warpgroup has 64 columns of C,
# and many rows of C share an unpacked weight. (rows, columns, elements of K in a step, efficiency): a long step has
# fewer waits, and parts that overlap; the largest tile needs the registers for its sums.
_PACKED_TILES = (
    (256, 128, 64, 1.0),
    (128, 128, 128, 0.75),
    (128, 128, 64, 0.68),
    (64, 128, 128, 0.5),
    (64, 128, 64, 0.45),
)


def packed_gemm_tile(
    M: Any, N: Any, K: Any, weight_bits: int, extra_bytes: int = 0, arch: str | Arch = DEFAULT_CUDA
) -> GemmTile:
    """The tile for C (M, N) = A (M, K) @ W^T of 16-bit activations and weights (N, K) of `weight_bits` bits, which are
    unpacked into registers; of blocks that share K as `packed_split_k` says.

    `extra_bytes`: shared memory that a column of C needs beside the ring, as for its scales; two stages say that there
    is no room for more. Sizes that are no int count as large.
    """
    where, known = arch_of(arch), isinstance(M, int) and isinstance(N, int)
    if known and M <= _FEW_ROWS // 2:  # waits for memory and for its arithmetic: two blocks an SM hide each other's
        size = (next(r for r in (8, 16, 32) if r >= M), 64, 256)
        tiles = [_packed_tile(size, K, weight_bits, extra_bytes, where, blocks) for blocks in (2, 1)]
        return next((tile for tile in tiles if tile.num_stages >= _FEW_STAGES), tiles[-1])
    ranked = sorted(_PACKED_TILES, key=lambda t: (_packed_cost(t, M, N, K, where) if known else 0, -t[3]))
    tiles = [_packed_tile(t[:3], K, weight_bits, extra_bytes, where) for t in ranked]
    return next((tile for tile in tiles if tile.num_stages >= _FEW_STAGES), tiles[0])


def _packed_cost(tile: tuple[int, int, int, float], M: int, N: int, K: Any, arch: Arch) -> float:
    rows, columns, depth, efficiency = tile
    tiles = -(-M // rows) * -(-N // columns)
    parts = split_k_of(tiles, K, depth, arch) if isinstance(K, int) else 1
    return -(-tiles * parts // arch.num_sms) * rows * columns / parts / efficiency


def _packed_tile(
    size: tuple[int, int, int], K: Any, weight_bits: int, extra_bytes: int, arch: Arch, blocks: int = 1
) -> GemmTile:
    rows, columns, depth = size
    steps = -(-K // depth) if isinstance(K, int) else _MAX_PACKED_STAGES
    stage = rows * depth * 2 + columns * depth * weight_bits // 8
    room = _limit(blocks, arch) - rows * columns * 2 - columns * extra_bytes - _SLACK_BYTES
    stages = max(2, min(room // stage, max(steps, _FEW_STAGES), _MAX_PACKED_STAGES))
    return GemmTile(rows, columns, depth, stages, 2 * columns)


def packed_split_k(M: Any, N: Any, K: Any, tile: GemmTile, arch: str | Arch = DEFAULT_CUDA) -> int:
    """Parts of K that a product with packed weights is computed in: as many as give every SM a block of `tile`, or two
    small ones. 1 for sizes that are no int."""
    if not (isinstance(M, int) and isinstance(N, int) and isinstance(K, int)):
        return 1
    tiles = -(-M // tile.block_M) * -(-N // tile.block_N)
    return split_k_of(-(-tiles // 2) if tile.threads == _WARPGROUP else tiles, K, tile.block_K, arch)


def split_k_of(blocks: int, K: int, block_K: int, arch: str | Arch = DEFAULT_CUDA) -> int:
    """Parts of K that give every SM a block, each of at least four steps; 1 where `blocks` tiles do that already."""
    return max(1, min(arch_of(arch).num_sms // max(blocks, 1), -(-K // block_K) // 4))


def _cost(tile: tuple[int, int, int, float], M: int, N: int, arch: Arch) -> float:
    rows, columns, _, efficiency = tile
    waves = -(-(-(-M // rows) * -(-N // columns)) // arch.num_sms)
    return waves * rows * columns / efficiency


def _few_rows(M: int, N: int, bits: int, steps: int, arch: Arch) -> GemmTile:
    rows = next(r for r in (16, 32, _FEW_ROWS) if r >= M)
    share = -(-N // arch.num_sms // _COLUMN_STEP) * _COLUMN_STEP
    if rows == _FEW_ROWS and _WIDE[0] <= share <= _WIDE[1]:
        # The rows fill wgmma's: an SM's share of the columns is one tile, whose activations are read once.
        stage = (rows + share) * _STEP_BITS // 8
        stages = max(2, min((_limit(2, arch) - _SLACK_BYTES) // stage, _MAX_STAGES, max(steps, 2)))
        return GemmTile(rows, share, _STEP_BITS // bits, stages, _WARPGROUP)
    columns, depth, steps = _FEW_COLUMNS, 2 * _STEP_BITS, -(-steps // 2)
    tiles = -(-N // columns)
    # Two blocks an SM fill the gaps of each other where there are more blocks than SMs; where there are more than half
    # as many, and the ring is mostly weights, those of the next launch find room beside them.
    blocks = 2 if tiles * (2 if rows == 16 else 1) > arch.num_sms else 1
    if blocks == 1 and rows == _FEW_ROWS:
        stages = _streamed_stages(rows, columns, steps, arch)
    else:
        stages = _stages((rows + columns) * depth // 8, rows, columns, steps, blocks, arch)
    return GemmTile(rows, columns, depth // bits, stages, 128)


def _streamed_stages(rows: int, columns: int, steps: int, arch: Arch) -> int:
    """Stages of two boxes of weights, where one row of tiles lets A have COMMON_SLOTS slots (plan_stages)."""
    room = _limit(1, arch) - COMMON_SLOTS * rows * 2 * _STEP_BITS // 8 - rows * columns * 2 - _SLACK_BYTES
    return max(2, min(room // (columns * 2 * _STEP_BITS // 8), _MAX_STAGES, max(steps, 2)))


def _stages(stage_bytes: int, rows: int, columns: int, steps: int, blocks: int, arch: Arch) -> int:
    """Stages that fit beside the tile's way out, `blocks` on an SM."""
    room = _limit(blocks, arch) - rows * min(columns, 128) * 2 - _SLACK_BYTES
    return max(2, min(room // stage_bytes, _MAX_STAGES, max(steps, 2)))


def _limit(blocks: int, arch: Arch) -> int:
    """Bytes of shared memory of a block, `blocks` on an SM."""
    return min(arch.smem_bytes_per_block, arch.smem_bytes_per_sm // blocks - arch.smem_bytes_reserved)
