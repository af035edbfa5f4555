# SPDX-License-Identifier: Apache-2.0
"""The tile of a product by its shape: what hand-written kernels were fastest with, and what shared memory holds."""

from __future__ import annotations

import pytest

from tilelang.autotuner import GemmTile, gemm_tile, packed_gemm_tile, packed_split_k, split_k_of
from tilelang.target.arch import arch_of
from tilelang.transform.plan_stages import COMMON_SLOTS


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((8192, 8192, 8192), (128, 256)),
        ((4096, 4096, 4096), (128, 256)),
        ((512, 8192, 8192), (128, 256)),
        ((512, 4096, 4096), (128, 128)),
        ((256, 8192, 8192), (128, 128)),
        ((128, 8192, 8192), (128, 64)),
        ((128, 28672, 4096), (128, 256)),
        ((1000, 1000, 520), (128, 64)),
        ((64, 8192, 8192), (64, 64)),
        ((64, 28672, 4096), (64, 224)),
        ((40, 16500, 4096), (64, 128)),
        ((64, 40000, 4096), (64, 64)),
        ((17, 4096, 4096), (32, 64)),
        ((1, 4096, 4096), (16, 64)),
    ],
)
def test_tiles_are_those_of_the_fastest_kernels(shape: tuple[int, int, int], tile: tuple[int, int]) -> None:
    chosen = gemm_tile(*shape)
    assert (chosen.block_M, chosen.block_N) == tile


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize(
    "shape", [(1, 4096, 14336), (16, 28672, 4096), (64, 8192, 8192), (128, 8192, 8192), (256, 8192, 8192), (8192,) * 3]
)
def test_rings_are_deep_and_fit(shape: tuple[int, int, int], dtype: str) -> None:
    arch, tile = arch_of("sm_90a"), gemm_tile(*shape, dtype)
    bits = {"bfloat16": 16, "float8_e4m3fn": 8, "float32": 32}[dtype]
    row, stages = tile.block_K * bits // 8, tile.num_stages
    used = stages * (tile.block_M + tile.block_N) * row
    if shape[0] in (64, 128):  # all blocks read A, which gets few slots
        used = COMMON_SLOTS * tile.block_M * row + stages * tile.block_N * row
    assert used <= arch.smem_bytes_per_block
    assert used >= 0.4 * arch.smem_bytes_per_block  # two blocks may share an SM
    assert tile.block_K * bits % 1024 == 0


def test_short_products_have_no_more_stages_than_steps() -> None:
    assert gemm_tile(16, 4096, 256).num_stages == 2


def test_unknown_sizes_count_as_large_and_callers_may_pin() -> None:
    assert gemm_tile(object(), 4096, 4096) == GemmTile()
    assert gemm_tile(4096, 4096, 4096).pinned(num_stages=3, threads=None).num_stages == 3


def test_parts_of_k_fill_the_processors_but_stay_long() -> None:
    assert split_k_of(2, 16384, 64) == 64
    assert split_k_of(128, 16384, 64) == 1
    assert split_k_of(1, 1024, 64) == 4


@pytest.mark.parametrize("weight_bits", [2, 4])
@pytest.mark.parametrize("extra", [0, 256, 1024])
@pytest.mark.parametrize("rows", [1, 32, 64, 128, 256, 4096])
def test_rings_of_packed_weights_fit_beside_their_scales(rows: int, extra: int, weight_bits: int) -> None:
    arch = arch_of("sm_90a")
    tile = packed_gemm_tile(rows, 8192, 8192, weight_bits, extra)
    stage = tile.block_M * tile.block_K * 2 + tile.block_N * tile.block_K * weight_bits // 8
    way_out = tile.block_M * tile.block_N * 2
    assert tile.num_stages >= 3
    assert tile.num_stages * stage + way_out + tile.block_N * extra <= arch.smem_bytes_per_block
    assert tile.block_N == 64 * tile.threads // 128  # a block of rows of wgmma for each warpgroup


def test_packed_weights_are_unpacked_once_for_many_rows() -> None:
    assert packed_gemm_tile(4096, 8192, 8192, 4).block_M == 256
    assert packed_gemm_tile(16, 8192, 8192, 4).block_N == 64
    assert packed_gemm_tile(1, 8192, 8192, 4).block_M == 8
    assert packed_gemm_tile(object(), 8192, 8192, 4).block_M == 256


@pytest.mark.parametrize(
    ("rows", "columns", "parts"),
    [(1, 8192, 2), (16, 28672, 1), (64, 8192, 2), (128, 8192, 2), (128, 4096, 4), (4096, 8192, 1), (object(), 8192, 1)],
)
def test_parts_of_k_give_every_processor_packed_weights(rows: object, columns: int, parts: int) -> None:
    """Up to 32 rows two blocks an SM."""
    tile = packed_gemm_tile(rows, columns, 8192, 4, 256)
    assert packed_split_k(rows, columns, 8192, tile) == parts


def test_few_rows_of_packed_weights_leave_room_for_a_second_block() -> None:
    tile, arch = packed_gemm_tile(16, 8192, 8192, 4, 256), arch_of("sm_90a")
    stage = tile.block_M * tile.block_K * 2 + tile.block_N * tile.block_K // 2
    assert tile.num_stages * stage + tile.block_N * 256 <= arch.smem_bytes_per_sm // 2
