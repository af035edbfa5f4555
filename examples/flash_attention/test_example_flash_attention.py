# SPDX-License-Identifier: Apache-2.0
"""The attention example against float32 attention: under pytest, or as a script over sequence lengths.

`python test_example_flash_attention.py` prints one line a sequence length with torch's latency beside ours.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tilelang

sys.path.insert(0, str(Path(__file__).parent))
from example_mha_fwd_bhsd import check, eager, flashattn, fused, make_inputs  # noqa: E402  (the folder is no package)

# (batch, heads, seq_q, seq_kv, dim, causal): whole tiles, ragged tails, fewer queries than keys, and the reverse.
SHAPES = [
    (1, 2, 128, 128, 64, False),
    (1, 1, 100, 130, 64, False),
    (1, 2, 128, 128, 64, True),
    (2, 1, 65, 200, 64, True),
    (1, 1, 130, 70, 64, True),
]


@pytest.fixture(params=["cpu", "sim"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test twice: by meaning, and as the device program under the simulator's checks."""
    monkeypatch.setenv("TILELANG_TARGET", request.param)


def on_the_host(*problem: Any) -> tuple[torch.Tensor, ...]:
    """The inputs where these targets take them."""
    return tuple(x.cpu() for x in make_inputs(*problem))


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("num_stages", [0, 2])
def test_matches_float32_attention(shape: tuple[int, int, int, int, int, bool], num_stages: int) -> None:
    torch.manual_seed(0)
    kernel = flashattn(*shape, block_M=64, block_N=64, num_stages=num_stages, threads=128)
    check(kernel, on_the_host(*shape[:5]), shape[5])


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("is_causal", [False, True])
def test_default_schedule(dim: int, is_causal: bool) -> None:
    torch.manual_seed(0)
    shape = (1, 1, 300, 300, dim)
    check(flashattn(*shape, is_causal), on_the_host(*shape), is_causal)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("swizzle", ["annotated", "none"])
def test_swizzle_does_not_change_the_result(swizzle: str) -> None:
    torch.manual_seed(0)
    shape = (1, 1, 128, 128, 64)
    kernel = flashattn(*shape, False, block_M=64, block_N=64, num_stages=2, threads=128, swizzle=swizzle)
    check(kernel, on_the_host(*shape), False)


@pytest.mark.gpu
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_default_schedule_on_the_gpu(dim: int, is_causal: bool) -> None:
    torch.manual_seed(0)
    for seq in (1000, 2048):
        shape = (1, 12, seq, seq, dim)
        check(flashattn(*shape, is_causal), make_inputs(*shape), is_causal)


def main() -> None:
    """Compare with torch over sequence lengths, as the chart of the story does."""
    on_gpu = torch.cuda.is_available()
    heads, lengths = (12, (512, 1024, 2048, 4096, 8192)) if on_gpu else (1, (64, 128, 256))
    print(f"{'sequence':>8} {'causal':>7} {'ours ms':>10} {'fused ms':>10} {'eager ms':>10} {'largest error':>14}")
    for is_causal in (False, True):
        for seq in lengths:
            shape = (1, heads, seq, seq, 64)
            kernel, inputs = flashattn(*shape, is_causal), make_inputs(*shape)
            error = check(kernel, inputs, is_causal)
            ms = [
                tilelang.profiler.do_bench(call, warmup=3, rep=12, return_mode="median")
                for call in (
                    lambda k=kernel, i=inputs: k(*i),
                    lambda i=inputs, c=is_causal: fused(*i, c),
                    lambda i=inputs, c=is_causal: eager(*i, c),
                )
            ]
            print(f"{seq:8d} {is_causal!s:>7} {ms[0]:10.4f} {ms[1]:10.4f} {ms[2]:10.4f} {error:14.2e}")


if __name__ == "__main__":
    main()
