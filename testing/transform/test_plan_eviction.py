# SPDX-License-Identifier: Apache-2.0
"""Which loads stay in L2: those that other blocks repeat, where others would push them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from outline import SM90
from tile_programs import Builder, flash_attention_program, gemm_program, region

from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.target.arch import Arch
from tilelang.transform.plan_copies import plan_copies
from tilelang.transform.plan_eviction import plan_eviction
from tilelang.transform.plan_gemms import plan_gemms


def policies(func: Any, enabled: bool = True, arch: Arch = SM90) -> dict[str, str]:
    """The policy of every tensor that is loaded."""
    planned = plan_eviction(plan_copies(plan_gemms(func, arch), arch), arch, enabled)
    ops = [TileOp.from_stmt(s) for kernel in launches(planned) for s in walk_list(kernel.body)]
    loads = [op for op in ops if op is not None and op.name == "copy" and op.attrs["via"] == "tma_load"]
    return {op["src"].source.name: op.attrs["eviction_policy"] for op in loads}


def test_keys_and_values_stay_and_queries_go_first() -> None:
    found = policies(flash_attention_program(), arch=replace(SM90, num_sms=1))
    assert found == {"Q": "evict_first", "K": "evict_last", "V": "evict_last"}
    assert set(policies(flash_attention_program(), enabled=False).values()) == {""}


def test_products_have_no_load_that_one_block_alone_reads() -> None:
    assert set(policies(gemm_program()).values()) == {""}


def test_weights_that_one_block_reads_make_room_for_rows_that_all_read() -> None:
    assert policies(gemm_program(bm=512, bn=64, threads=512)) == {"A": "evict_last", "B": "evict_first"}


def test_weights_that_few_blocks_read_in_step_go_first() -> None:
    assert policies(gemm_program(bm=256, bn=64)) == {"A": "evict_last", "B": "evict_first"}


def test_weights_that_blocks_read_one_wave_after_another_stay() -> None:
    assert set(policies(gemm_program(bm=256, bn=64), arch=replace(SM90, num_sms=4)).values()) == {""}


def stream(steps: int) -> Any:
    """Blocks that each add up products of rows of their own."""
    rows = steps * 64
    params = {"A": ((8 * rows, 64), "float16"), "B": ((64, 64), "float16"), "C": ((512, 64), "float32")}
    with Builder(128, (8,), params) as b:
        A, B, C = b.args
        (x,) = b.blocks
        As, Bs, acc = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("acc", (64, 64))
        b.copy(region(B), Bs)
        b.fill(acc)
        with b.serial(steps, 2) as k:
            b.copy(region(A, (x * rows + k * 64, 64), (0, 64)), As)
            b.gemm(As, Bs, acc)
        b.copy(acc, region(C, (x * 64, 64), (0, 64)))
    return b.func


def test_a_tensor_that_is_read_once_goes_first_if_l2_could_hold_it() -> None:
    assert policies(stream(16))["A"] == "evict_first"
    assert policies(stream(16), arch=replace(SM90, l2_bytes=1 << 18))["A"] == ""
