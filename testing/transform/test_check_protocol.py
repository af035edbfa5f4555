# SPDX-License-Identifier: Apache-2.0
"""The protocol checks print their arithmetic: arrivals, announced bytes, registers, threads of named barriers.

Texts of whole programs are in testing/errors/compiler/tl5008.py to tl5011.py; here are the numbers of small kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim_build import Arena, at, dev, encode, kernel, when
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.support.errors import UserError
from tilelang.target.arch import ARCHS
from tilelang.transform.check_protocol import check_protocol

SM90 = ARCHS["sm_90a"]


def refused(body: Callable[..., None], threads: int) -> str:
    """The message for a kernel, "" when it passes."""
    func = kernel(body, {"A": ((256, 256), "bfloat16"), "B": ((256,), "float32")}, threads)
    try:
        assert check_protocol(func, SM90) is func
    except UserError as error:
        return f"{error.code}: {error.text}"
    return ""


def budgets(*steps: tuple[str, int, Callable[[Any], Any]]) -> Callable[..., None]:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        for direction, regs, who in steps:
            with when(who(tx)):
                dev(f"setmaxnreg_{direction}", regs=regs)

    return body


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([("dec", 40, lambda t: t >= 256), ("inc", 232, lambda t: t < 256)], ""),
        (
            [("dec", 40, lambda t: t >= 256), ("inc", 240, lambda t: t < 256)],
            "TL5008: setmaxnreg_inc to 240 registers waits forever: "
            "128 threads x 40 + 256 threads x 240 = 66560 registers > 64512 of the block at launch",
        ),
        (
            [("dec", 40, lambda t: t < 192)],
            "TL5008: setmaxnreg_dec to 40 registers is executed by threads 0 to 191, "
            "which are no whole warpgroups of 128",
        ),
        (
            [("inc", 120, lambda t: t < 128)],
            "TL5008: setmaxnreg_inc to 120 registers is executed by threads 0 to 127, which have 168 registers "
            "(65536 / 384 threads, in steps of 8: 168 each at launch)",
        ),
        (
            [("dec", 200, lambda t: t < 128)],
            "TL5008: setmaxnreg_dec to 200 registers is executed by threads 0 to 127, which have 168 registers "
            "(65536 / 384 threads, in steps of 8: 168 each at launch)",
        ),
    ],
)
def test_register_budgets(steps: Any, text: str) -> None:
    assert refused(budgets(*steps), 384) == text


@pytest.mark.parametrize(
    ("count", "arriving", "text"),
    [
        (64, (64,), ""),
        (64, (32, 32), ""),
        (64, (32,), ""),  # twice
        (32, (64,), "TL5010: bar completes a phase after 32 arrivals, but 64 threads arrive at once"),
        (64, (48,), "TL5010: bar completes a phase after 64 arrivals, but only 48 arrive, again and again"),
        (64, (20, 30), "TL5010: bar completes a phase after 64 arrivals, but only 20 + 30 arrive"),
    ],
)
def test_arrivals(count: int, arriving: tuple[int, ...], text: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        bar = Arena(64).view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), count)
        dev("sync_threads")
        for n in arriving:
            with when(tx < n):
                dev("mbar_arrive", at(bar, 0))

    assert refused(body, 64) == text


@pytest.mark.parametrize(
    ("announced", "text"),
    [
        (8192 + 1024, ""),
        (
            8192,
            "TL5011: bar is told to expect 8192 bytes, but its transfers bring "
            "64 x 64 x 16 bits = 8192 + 1024: 9216 bytes",
        ),
    ],
)
def test_bytes(announced: int, text: str) -> None:
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("kernel")
        A = T.arg("A", T.buffer((256, 256), "bfloat16", layout=None))
        B = T.arg("B", T.buffer((256,), "float32", layout=None))
        a_map = encode("a_map", A, [256, 256], [512], [64, 64])
        with T.launch_thread("blockIdx.x", 1), T.launch_thread("threadIdx.x", 32) as tx:
            arena = Arena(16384)
            s, r = arena.view("S", (4096,), "bfloat16", 2), arena.view("R", (256,), "float32", 4)
            bar = arena.view("bar", (1,), "uint64", 8)
            with when(tx == 0):
                dev("mbar_init", at(bar, 0), 1)
                dev("mbar_expect_tx", at(bar, 0), announced)
                dev("tma_load_2d", at(s, 0), a_map, at(bar, 0), 0, 0)
                dev("bulk_load", at(r, 0), at(B, 0), 1024, at(bar, 0))
            dev("mbar_wait", at(bar, 0), 0)
    try:
        check_protocol(ib.get(), SM90)
        found = ""
    except UserError as error:
        found = f"{error.code}: {error.text}"
    assert found == text


@pytest.mark.parametrize(
    ("number", "count", "comes", "text"),
    [
        (3, 64, 64, ""),
        (3, 64, 128, ""),
        (3, 128, 64, "TL5009: named barrier 3: it counts 128 threads, but only 64 ever come: 0 to 63"),
        (
            3,
            80,
            128,
            "TL5009: named barrier 3: it counts 80 threads; it must be whole warps of 32, at most the block's 128",
        ),
        (17, 64, 64, "TL5009: named barrier 17: a block has barriers 0 to 15"),
    ],
)
def test_named_barriers(number: int, count: int, comes: int, text: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with when(tx < comes):
            dev("bar_sync", number, count)

    assert refused(body, 128) == text
