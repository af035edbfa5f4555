# SPDX-License-Identifier: Apache-2.0
"""Times variants of the attention example beside each other and beside cuDNN and FlashAttention-3.

A variant is a tile shape and a set of pass configs. All variants of one shape are compiled first (without the GPU),
then checked against float32, then timed in turns as bench.py does (suite/protocol.py).

    python benchmarks/attention_variants.py [--shape d64 d128] [--mask causal full] [--rounds 7] [--only turns lazy]
    python benchmarks/attention_variants.py --compile   # no GPU: registers, spills and notes of every variant
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import tilelang

sys.path.insert(0, str(Path(__file__).resolve().parent))

from suite.contest import Case, Prepare, Setup, contest
from suite.examples import example
from suite.families import attention
from suite.record import Row, show

SHAPES = {
    "d64": (1, 12, 2048, 64),
    "d64long": (4, 32, 4096, 64),
    "d128": (4, 16, 4096, 128),
    "d128long": (1, 16, 16384, 128),
}  # batch, heads, length, head dimension
OFF = {
    "tl.long_blocks_first": False,
    "tl.warpgroup_turns": False,
    "tl.early_waits": False,
    "tl.relaxed_division": False,
    "tl.deferred_sums": False,
    "tl.persistent": False,
    "tl.l2_hints": False,
}


@dataclass(frozen=True)
class Variant:
    """One way to compile the example."""

    name: str
    tiles: tuple[int, int, int, int]  # block_M, block_N, num_stages, threads
    configs: dict[str, Any] = field(default_factory=dict)
    dims: tuple[int, ...] = (64, 128)
    masks: tuple[str, ...] = ("causal", "full")


def _without(*keys: str) -> dict[str, Any]:
    """Everything on but `keys`."""
    return {key: OFF[key] for key in keys}


SQUARE, WIDE = (128, 128, 2, 256), (192, 128, 2, 384)
TURNS, PINNED, PERSISTENT = {"tl.warpgroup_turns": True}, {"tl.pinned_waits": True}, {"tl.persistent": True}
LAZY = {"tl.lazy_rescale": 8.0}
VARIANTS = (
    Variant("128 all off", SQUARE, OFF),
    Variant("128", SQUARE),
    Variant("128 turns", SQUARE, TURNS),
    Variant("128 pinned", SQUARE, PINNED),
    Variant("128 late", SQUARE, _without("tl.warpgroup_turns", "tl.early_waits")),
    Variant("128 lazy", SQUARE, LAZY),
    Variant("128 lazy, turns", SQUARE, {**LAZY, **TURNS}),
    Variant("128 lazy, pinned", SQUARE, {**LAZY, **PINNED}),
    Variant("128 persistent", SQUARE, PERSISTENT),
    Variant("128 persistent, turns", SQUARE, {**PERSISTENT, **TURNS}),
    Variant("128 persistent, pinned", SQUARE, {**PERSISTENT, **PINNED}),
    Variant("128 unordered", SQUARE, _without("tl.long_blocks_first"), masks=("causal",)),
    Variant("128 exact division", SQUARE, _without("tl.relaxed_division")),
    Variant("128 whole sums", SQUARE, _without("tl.deferred_sums")),
    Variant("128 no hints", SQUARE, _without("tl.l2_hints")),
    Variant("192 all off", WIDE, OFF, dims=(64,)),
    Variant("192", WIDE, dims=(64,)),
    Variant("192 no turns", WIDE, _without("tl.warpgroup_turns"), dims=(64,)),
    Variant("192 no turns, pinned", WIDE, {**_without("tl.warpgroup_turns"), **PINNED}, dims=(64,)),
    Variant("192 no turns, late", WIDE, _without("tl.warpgroup_turns", "tl.early_waits"), dims=(64,)),
    Variant("192 persistent", WIDE, PERSISTENT, dims=(64,)),
    Variant("192 whole sums", WIDE, _without("tl.deferred_sums"), dims=(64,)),
    Variant("192 lazy", WIDE, LAZY, dims=(64,)),
    Variant("192x96", (192, 96, 2, 384), dims=(64,)),
    Variant("192x64x3", (192, 64, 3, 384), dims=(64,)),
    Variant("192x128x3", (192, 128, 3, 384), dims=(64,)),
    Variant("128x64x3", (128, 64, 3, 256)),
    Variant("128x128x3", (128, 128, 3, 256), dims=(64,)),
    Variant("64x128", (64, 128, 2, 128), dims=(64,)),
    Variant("64x64x3", (64, 64, 3, 128), dims=(64,)),
    Variant("128x160", (128, 160, 2, 256), dims=(128,)),
    Variant("128x176", (128, 176, 2, 256), dims=(128,)),
    Variant("192x80", (192, 80, 2, 384), dims=(128,)),
)


def build(variant: Variant, shape: tuple[int, int, int, int], causal: bool, target: str | None = None) -> Any:
    """The compiled kernel (Q, K, V) -> Output."""
    batch, heads, length, dim = shape
    block_m, block_n, stages, threads = variant.tiles
    factory = example("flash_attention", "example_mha_fwd_bhsd").flashattn
    func = factory.get_tir(batch, heads, length, length, dim, causal, block_m, block_n, stages, threads)
    return tilelang.compile(func, out_idx=[3], target=target, pass_configs=variant.configs)


def chosen(dim: int, mask: str, only: list[str]) -> list[Variant]:
    fitting = [v for v in VARIANTS if dim in v.dims and mask in v.masks]
    return [v for v in fitting if not only or any(word in v.name for word in only)]


def row(name: str, mask: str, only: list[str], rounds: int) -> Row:
    """Every chosen variant of one shape, and the peers."""
    batch, heads, length, dim = shape = SHAPES[name]
    causal = mask == "causal"

    def setup() -> Setup:
        q, k, v = (torch.randn(batch, heads, length, dim, device="cuda").half() for _ in range(3))

        def ours(variant: Variant) -> Any:
            kernel = build(variant, shape, causal)
            return lambda: kernel(q, k, v)

        calls: dict[str, Prepare] = {
            variant.name: lambda variant=variant: ours(variant) for variant in chosen(dim, mask, only)
        }
        calls["cudnn"] = lambda: attention.sdpa("CUDNN_ATTENTION", q, k, v, causal)
        calls["fa3 bf16"] = lambda: attention.flash3(q, k, v, causal)
        want = attention.by_heads(q, k, v, causal)
        return Setup(want, calls, attention.LIMIT, {"fa3 bf16": attention.BF16_LIMIT})

    work = example("flash_attention", "example_mha_fwd_bhsd").flops(batch, heads, length, length, dim, causal)
    return contest("attention_variants", Case(f"{name} {mask}", setup, work), rounds=rounds)


def report(name: str, mask: str, only: list[str]) -> int:
    """Compiles without a GPU and prints what ptxas and the passes say; the number of variants with spills."""
    bad = 0
    for variant in chosen(SHAPES[name][3], mask, only):
        notes = build(variant, SHAPES[name], mask == "causal", "cuda:sm_90a").adapter.notes
        bad += any("spill" in note or "C75" in note for note in notes)
        print(f"{name} {mask} {variant.name:20s} {'; '.join(notes)}", flush=True)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="*", choices=list(SHAPES), default=["d64", "d128"])
    parser.add_argument("--mask", nargs="*", choices=["causal", "full"], default=["causal", "full"])
    parser.add_argument("--only", nargs="*", default=[], help="variants whose name contains one of these words")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compile", action="store_true", help="compile for sm_90a, run nothing")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    cases = [(name, mask) for name in args.shape for mask in args.mask]
    if args.compile:
        return int(sum(report(name, mask, args.only) for name, mask in cases) > 0)
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure (--compile needs none)")
        return 1
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference is float32
    torch.cuda.set_stream(torch.cuda.Stream())  # what is captured must not touch the default stream
    rows = []
    for name, mask in cases:
        rows.append(row(name, mask, args.only, args.rounds))
        show(rows[-1])
        if args.output:
            args.output.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
