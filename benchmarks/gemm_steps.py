# SPDX-License-Identifier: Apache-2.0
"""What each step of the compiler is worth for matrix products on this machine's GPU, beside cuBLAS.

Every variant is the example's plain tile program with some steps switched off by pass_configs; it is checked against
float32 first and timed in turns, as bench.py does (suite/protocol.py).

    python benchmarks/gemm_steps.py [--sizes 4096,4096,4096 8192,8192,512] [--only default cublas] [--nn] [--rounds 7]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

import tilelang

sys.path.insert(0, str(Path(__file__).resolve().parent))

from suite.contest import Case, Prepare, Setup, contest
from suite.examples import example
from suite.families.gemm import LIMIT
from suite.record import show

OFF = {"tl.raster_panel": 0, "tl.warpgroup_stores": False, "tl.persistent": False}


def without(*names: str) -> dict[str, object]:
    """The pass_configs that switch these steps off."""
    return {key: value for key, value in OFF.items() if key.removeprefix("tl.") in names}


VARIANTS: dict[str, dict[str, object]] = {
    "no step": OFF,
    "raster": without("warpgroup_stores", "persistent"),
    "+stores": without("persistent"),
    "default": {},
    "default -raster": without("raster_panel"),
    "default -stores": without("warpgroup_stores"),
    "default +carry": {"tl.carry_gemms": True},
    "default +cluster": {"tl.cluster": 2},
    "+cluster +carry": {"tl.cluster": 2, "tl.carry_gemms": True},
}


def case(m: int, n: int, k: int, transposed: bool, tile: dict[str, int], only: list[str] | None) -> Case:
    """Every wanted variant of one size, and cuBLAS."""

    def setup() -> Setup:
        a = torch.randn(m, k, device="cuda").bfloat16()
        b = torch.randn(*((n, k) if transposed else (k, n)), device="cuda").bfloat16()
        logical = b.T if transposed else b
        program = example("gemm", "example_gemm").matmul.get_tir(m, n, k, "bfloat16", False, transposed, **tile)

        def ours(config: dict[str, object]) -> Any:
            kernel = tilelang.compile(program, out_idx=[-1], pass_configs=config)
            return lambda: kernel(a, b)

        calls: dict[str, Prepare] = {name: lambda config=config: ours(config) for name, config in VARIANTS.items()}
        calls["cublas"] = lambda: lambda: a @ logical
        return Setup(a.float() @ logical.float(), {n: c for n, c in calls.items() if not only or n in only}, LIMIT)

    return Case(f"bf16 {m}x{n}x{k} {'NT' if transposed else 'NN'}", setup, 2.0 * m * n * k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = ["4096,4096,4096", "8192,8192,8192", "4096,4096,14336", "8192,8192,1024", "8192,8192,512"]
    parser.add_argument("--sizes", nargs="*", default=sizes, help="M,N,K")
    parser.add_argument("--only", nargs="*", choices=[*VARIANTS, "cublas"])
    parser.add_argument("--nn", action="store_true", help="B is stored (K, N)")
    parser.add_argument("--tile", default="128,256,64,4,256", help="block_M,block_N,block_K,num_stages,threads")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()

    names = ("block_M", "block_N", "block_K", "num_stages", "threads")
    tile = dict(zip(names, map(int, args.tile.split(",")), strict=True))
    torch.cuda.set_stream(torch.cuda.Stream())  # what is captured must not touch the default stream
    for m, n, k in (map(int, size.split(",")) for size in args.sizes):
        show(contest("gemm_steps", case(m, n, k, not args.nn, tile, args.only), rounds=args.rounds))


if __name__ == "__main__":
    main()
