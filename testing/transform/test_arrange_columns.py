# SPDX-License-Identifier: Apache-2.0
"""arrange_columns: a product's accumulator is the next one's 8-bit operand as it stands, where that is proved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.analysis.check_layouts import check_layouts
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.pipeline import lower

M, DEPTH, OUT = 64, 64, 32


def chain(way: str = "", keys: int = 192, tile: int = 64, kind: str = "int8", threads: int = 128) -> Any:
    """O = narrow(Q K^T) V^T, tile by tile of the keys, in the ways that decide whether rows of K may be arranged."""
    wide = "int32" if kind == "int8" else "float32"
    dims = {"five dimensions": (1, 1, 1, keys, DEPTH), "heads between": (keys, 2, DEPTH)}.get(way, (keys, DEPTH))
    rows = M * threads // 128

    @T.prim_func
    def main(
        Q: T.Tensor((rows, DEPTH), kind),
        K: T.Tensor(dims, kind),
        V: T.Tensor((OUT, keys), kind),
        O: T.Tensor((rows, OUT), wide),
    ):
        with T.Kernel(1, threads=threads):
            Qs = T.alloc_shared((rows, DEPTH), kind)
            Ks = T.alloc_shared((tile, DEPTH), kind)
            Vs = T.alloc_shared((OUT, tile), kind)
            S = T.alloc_fragment((rows, tile), wide)
            P = T.alloc_fragment((rows, tile), kind)
            total = T.alloc_fragment((rows, OUT), wide)
            T.copy(Q, Qs)
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(keys, tile), num_stages=2):
                if way == "five dimensions":
                    T.copy(K[0, 0, 0, k * tile : (k + 1) * tile, :], Ks)
                elif way == "heads between":
                    T.copy(K[k * tile : (k + 1) * tile, 1, :], Ks)
                elif way == "loop":
                    T.copy(K[k * tile : (k + 1) * tile, :], Ks, disable_tma=True)
                elif way == "odd start":
                    T.copy(K[k * tile - 2 : (k + 1) * tile - 2, :], Ks)
                else:
                    T.copy(K[k * tile : (k + 1) * tile, :], Ks)
                T.copy(V[:, k * tile : (k + 1) * tile], Vs)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                if way == "read by threads":
                    for i, j in T.Parallel(rows, tile):
                        S[i, j] += T.cast(Ks[j, 0], wide)
                for i, j in T.Parallel(rows, tile):
                    P[i, j] = T.cast(T.clamp(S[i, j], -100, 100), kind)
                T.gemm(P, Vs, total, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(total, O)

    return main


def marks(func: Any) -> list[tuple[str, int]]:
    """(operand, pairs) of the loads and gemms, once inference has laid them out soundly."""
    func = lower(func, "sm_90a", stop_after="laid-out")
    assert check_layouts(func) == []
    (kernel,) = launches(func)
    ops = [op for op in map(TileOp.from_stmt, walk_list(kernel.body)) if op is not None]
    found = {
        (op["dst" if op.name == "copy" else "c"].source.name, op.attrs["pairs"]) for op in ops if "pairs" in op.attrs
    }
    return sorted(found)


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("tile", [32, 64, 96])
def test_keys_are_arranged_for_narrow_operands(kind: str, tile: int) -> None:
    func = chain(kind=kind, tile=tile)
    assert [mark for mark in marks(func) if mark[1] > 1] == [("Ks", 2), ("S", 2)]
    text = tilelang.lower(func, target="cuda").kernel_source
    assert "moved" not in text and "tl_tma_load_3d" in text


@pytest.mark.parametrize("way", ["loop", "read by threads", "five dimensions", "odd start"])
def test_rows_that_come_otherwise_stay_in_order(way: str) -> None:
    assert ("S", 1) in marks(chain(way))


def test_rows_may_lie_apart() -> None:
    assert ("S", 2) in marks(chain("heads between")) and ("S", 2) in marks(chain(keys=384, tile=192))


def test_rows_that_are_no_whole_groups_stay_in_order() -> None:
    assert ("S", 1) in marks(chain(keys=194)) and ("S", 2) in marks(chain(keys=196))


def test_wider_operands_need_no_order() -> None:
    assert all(pairs == 1 for _, pairs in marks(chain(kind="float16")))


@pytest.mark.parametrize(
    ("way", "given"),
    [
        ("", {}),
        ("", {"tile": 96}),
        ("", {"tile": 32, "threads": 256}),
        ("", {"keys": 144}),  # the last tile is not whole
        ("", {"keys": 100, "tile": 32}),
        ("", {"keys": 194}),
        ("", {"keys": 400, "tile": 192}),
        ("heads between", {"keys": 144}),
        ("read by threads", {}),
        ("loop", {}),
        ("odd start", {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("target", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_products_are_right(target: str, way: str, given: dict[str, Any]) -> None:
    func = chain(way, **given)
    rng = np.random.default_rng(0)
    keys, tile = given.get("keys", 192), given.get("tile", 64)
    shapes = (M * given.get("threads", 128) // 128, DEPTH), (keys, 2, DEPTH), (OUT, keys)
    q, both, v = (rng.integers(-3, 4, shape).astype(np.int8) for shape in shapes)
    k = np.ascontiguousarray(both[:, 1])
    shift = 2 if way == "odd start" else 0
    count = -(-keys // tile) * tile
    rows, columns = np.zeros((count, DEPTH), np.int64), np.zeros((OUT, count), np.int64)
    rows[shift : shift + keys], columns[:, :keys] = k[: count - shift], v
    scores = q.astype(np.int64) @ rows.T + (rows[:, 0] if way == "read by threads" else 0)
    want = np.clip(scores, -100, 100) @ columns.T
    kernel = tilelang.compile(func, out_idx=[3], target=target)
    inputs = map(torch.from_numpy, (q, both if way == "heads between" else k, v))
    got = kernel(*(x.cuda() if target == "cuda" else x for x in inputs))
    assert np.array_equal(got.cpu().numpy(), want)
