# SPDX-License-Identifier: Apache-2.0
"""What each step of the compiler is worth for matrix products on this machine's GPU, beside cuBLAS.

Every variant is the example's plain tile program with some steps switched off by pass_configs; it is checked against
float32 first. Protocol of timing as in bench.py: short bursts after pauses, in turns, the median of the rounds.

    python benchmarks/gemm_steps.py [--sizes 4096,4096,4096 8192,8192,512] [--only default cublas] [--nn] [--rounds 7]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from bench import GEMM_LIMIT, Call, contest, matmul, show

import tilelang

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = ["4096,4096,4096", "8192,8192,8192", "4096,4096,14336", "8192,8192,1024", "8192,8192,512"]
    parser.add_argument("--sizes", nargs="*", default=sizes, help="M,N,K")
    parser.add_argument("--only", nargs="*", choices=[*VARIANTS, "cublas"])
    parser.add_argument("--nn", action="store_true", help="B is stored (K, N)")
    parser.add_argument("--tile", default="128,256,64,4,256", help="block_M,block_N,block_K,num_stages,threads")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()

    tile = dict(
        zip(("block_M", "block_N", "block_K", "num_stages", "threads"), map(int, args.tile.split(",")), strict=True)
    )
    for m, n, k in (map(int, size.split(",")) for size in args.sizes):
        a = torch.randn(m, k, device="cuda").bfloat16()
        b = torch.randn(*((k, n) if args.nn else (n, k)), device="cuda").bfloat16()
        b_logical = b if args.nn else b.T
        program = matmul.get_tir(m, n, k, "bfloat16", False, not args.nn, **tile)

        def ours(config: dict[str, object], program=program, a=a, b=b) -> Callable[[], Call]:
            def prepare() -> Call:
                kernel = tilelang.compile(program, out_idx=[-1], pass_configs=config)
                return lambda: kernel(a, b)

            return prepare

        calls = {name: ours(config) for name, config in VARIANTS.items()}
        calls["cublas"] = lambda a=a, b=b_logical: lambda: a @ b
        wanted = {name: call for name, call in calls.items() if not args.only or name in args.only}
        want = a.float() @ b_logical.float()
        show(
            contest(
                f"bf16 {m}x{n}x{k} {'NN' if args.nn else 'NT'}", 2.0 * m * n * k, want, wanted, GEMM_LIMIT, args.rounds
            )
        )


if __name__ == "__main__":
    main()
