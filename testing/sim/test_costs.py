# SPDX-License-Identifier: Apache-2.0
"""The cost sheet on accesses whose bank conflicts and sectors are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sim_build import Arena, at, dev, kernel
from tvm import tirx
from tvm.tirx.script.builder import ir as T

import tilelang.language as TL
from tilelang.sim import Cost, CostSheet, simulate
from tilelang.transform.pipeline import lower


def costs(body: Callable[..., None], threads: int = 32, n: int = 8192) -> dict[str, Cost]:
    """Costs of a hand-written kernel over A and B, by what was done."""
    func = kernel(body, {"A": ((n,), "float32"), "B": ((n,), "float32")}, threads)
    result = simulate(func, [np.arange(n, dtype=np.float32), np.zeros(n, np.float32)], costs=True)
    assert not result.reports, result
    assert isinstance(result.costs, CostSheet)
    return {c.what: c for c in result.costs.rows()}


def column(pitch: int, columns: int = 1) -> Callable[..., None]:
    """Thread t reads row t of a column of float32, in rows of `pitch` elements, `columns` elements at once."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(pitch * 32 * 4 + 1024).view("S", (pitch * 32,), "float32", 4, align=128)
        with T.serial(0, pitch) as i:
            T.buffer_store(s, A[tx], [i * 32 + tx])
        dev("sync_threads")
        with T.vectorized(0, columns) as v:
            T.buffer_store(B, s[tx * pitch + v], [tx * columns + v])

    return body


@pytest.mark.parametrize(
    ("pitch", "ways"), [(32, 32), (33, 1), (34, 2), (36, 4), (40, 8), (48, 16), (64, 32), (1, 1), (2, 2)]
)
def test_columns_of_unswizzled_rows(pitch: int, ways: int) -> None:
    load = costs(column(pitch))["shared load"]
    assert (load.on, load.width, load.requests) == ("S", 4, 1)
    assert (load.wavefronts, load.least_wavefronts, load.ways) == (ways, 1, ways)


@pytest.mark.parametrize(("pitch", "wavefronts", "ways"), [(32, 32, 8), (36, 4, 1), (40, 8, 2)])
def test_sixteen_bytes_a_thread_go_in_quarters_of_the_warp(pitch: int, wavefronts: int, ways: int) -> None:
    load = costs(column(pitch, columns=4))["shared load"]
    assert (load.width, load.wavefronts, load.least_wavefronts, load.ways) == (16, wavefronts, 4, ways)


def test_one_word_for_all_threads_is_one_wavefront() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (32,), "float32", 4)
        T.buffer_store(s, A[tx], [tx])
        dev("syncwarp")
        T.buffer_store(B, s[5], [tx])

    assert costs(body)["shared load"].wavefronts == 1


@pytest.mark.parametrize(
    ("stride", "sectors", "least"), [(1, 4, 4), (2, 8, 4), (4, 16, 4), (8, 32, 4), (64, 32, 4), (0, 1, 1)]
)
def test_sectors_of_strided_loads(stride: int, sectors: int, least: int) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        T.buffer_store(B, A[tx * stride], [tx])

    found = costs(body)
    assert (found["global load"].sectors, found["global load"].least_sectors) == (sectors, least)
    assert found["global store"].sectors == 4


def test_idle_threads_cost_nothing() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with T.If(tx < 8), T.Then():
            T.buffer_store(B, A[tx], [tx])

    load = costs(body, threads=64)["global load"]
    assert (load.requests, load.sectors, load.least_sectors) == (1, 1, 1)


@pytest.mark.parametrize(("pitch", "wavefronts"), [(64, 32), (72, 4)])
def test_ldmatrix_rows(pitch: int, wavefronts: int) -> None:
    """Rows of 128 bytes all start in bank 0; 16 bytes more spread them over all banks."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(pitch * 32 * 2 + 1024).view("S", (pitch * 32,), "float16", 2, align=128)
        r = T.alloc_buffer((8,), "float16", scope="local", layout=None)
        with T.serial(0, pitch) as i:
            T.buffer_store(s, T.float16(1), [i * 32 + tx])
        dev("sync_threads")
        T.evaluate(dev("ldmatrix_x4", r.data, at(s, tx * pitch)) or 0)

    load = costs(body)["ldmatrix"]
    assert (load.wavefronts, load.least_wavefronts, load.on) == (wavefronts, 4, "S")


def test_copies_products_and_waits_by_the_users_line() -> None:
    M, N, K, bk = 128, 128, 256, 64

    @TL.prim_func
    def main(A: TL.Tensor((M, K), "bfloat16"), B: TL.Tensor((K, N), "bfloat16"), C: TL.Tensor((M, N), "bfloat16")):
        with TL.Kernel(1, threads=128):
            As = TL.alloc_shared((M, bk), "bfloat16")
            Bs = TL.alloc_shared((bk, N), "bfloat16")
            acc = TL.alloc_fragment((M, N), "float32")
            TL.clear(acc)
            for k in TL.Pipelined(K // bk, num_stages=2):
                TL.copy(A[0, k * bk], As)
                TL.copy(B[k * bk, 0], Bs)
                TL.gemm(As, Bs, acc)
            TL.copy(acc, C)

    bf16 = ml_dtypes.bfloat16
    args = [np.ones((M, K), bf16), np.ones((K, N), bf16), np.zeros((M, N), bf16)]
    result = simulate(lower(main, "sm_90a"), args, costs=True)
    assert not result.reports and result.costs is not None
    lines = {i: text.strip() for i, text in enumerate(Path(__file__).read_text().split("\n"), 1)}
    found: dict[tuple[str, str], Cost] = {}
    for c in result.costs.rows():
        found.setdefault((lines[int(c.line.rpartition(":")[2])].split("(")[0], f"{c.what} {c.on}".strip()), c)
    steps = K // bk
    a = found["TL.copy", "TMA load As"]
    assert (a.requests, a.bytes) == (steps, M * K * 2)
    assert found["TL.copy", "TMA load Bs"].bytes == N * K * 2
    assert found["TL.gemm", "wgmma m64n128k16"].requests == steps * (bk // 16) * (M // 64)
    assert found["TL.gemm", "wait As_full"].requests == 4 * steps
    store = next(c for c in result.costs.rows() if c.what == "TMA store")
    assert store.bytes == M * N * 2
    text = result.costs.text()
    assert text.startswith("costs of 1 block\n") and "no bank conflicts" in text, text


@pytest.mark.parametrize(("op", "what"), [("mma", "mma m16n8k8"), ("mma_f64", "mma m8n8k4")])
def test_products_of_warps_are_counted(op: str, what: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        double = op == "mma_f64"
        d = T.alloc_buffer((4,), "float64" if double else "float32", scope="local", layout=None)
        ab = T.alloc_buffer((3,), "uint32", scope="local", layout=None)
        for i in range(4):
            T.buffer_store(d, tirx.const(0, "float64" if double else "float32"), [i])
        for i in range(3):
            T.buffer_store(ab, tirx.const(0, "uint32"), [i])
        with T.serial(0, 3):
            if double:
                dev(op, d.data, tirx.const(1.0, "float64"), tirx.const(2.0, "float64"))
            else:
                types = {"a_dtype": "float16", "b_dtype": "float16", "acc_dtype": "float32"}
                dev(op, d.data, at(ab, 0), at(ab, 2), shape="m16n8k8", **types)

    assert costs(body, threads=64)[what].requests == 6


def test_costs_are_only_taken_down_when_asked_for() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        T.buffer_store(B, A[tx], [tx])

    func = kernel(body, {"A": ((32,), "float32"), "B": ((32,), "float32")}, 32)
    assert simulate(func, [np.ones(32, np.float32), np.zeros(32, np.float32)]).costs is None
