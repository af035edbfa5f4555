# SPDX-License-Identifier: Apache-2.0
"""What each lever of the attention example is worth on this machine: the table that benchmark.sh prints.

Every variant is checked against float32 attention before it is timed. The variants take turns, in reversed order every
other round and after a pause, so that none of them profits from what ran before it; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from example_mha_fwd_bhsd import check, eager, flashattn, fused, make_inputs, tuned_flashattn

import tilelang

PAUSE_S = 0.04  # lets the clocks of a power-capped card recover


def measure(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median latency in ms of each call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        order = list(calls) if turn % 2 == 0 else list(calls)[::-1]
        for name in order:
            time.sleep(PAUSE_S)
            times[name].append(tilelang.profiler.do_bench(calls[name], warmup=3, rep=12, return_mode="median"))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=12 if on_gpu else 1)
    parser.add_argument("--seq", type=int, default=2048 if on_gpu else 128)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--full", action="store_true", help="no causal mask")
    parser.add_argument("--rounds", type=int, default=7 if on_gpu else 1)
    parser.add_argument("--no-tune", action="store_true", help="leave the tuned row out")
    args = parser.parse_args()

    shape = (args.batch, args.heads, args.seq, args.seq, args.dim, not args.full)
    tiles = {"block_M": 128, "block_N": 64, "threads": 256}
    kernels = {
        "plain tile program": flashattn(*shape, **tiles, num_stages=0, swizzle="none"),
        "+ swizzled tiles": flashattn(*shape, **tiles, num_stages=0),
        "+ pipeline, 3 stages": flashattn(*shape, **tiles, num_stages=3),
    }
    if not args.no_tune:
        kernels["+ tuned"] = tuned_flashattn(*shape)

    inputs = make_inputs(*shape[:5])
    calls: dict[str, Callable[[], object]] = {"torch, op by op": lambda: eager(*inputs, shape[5])}
    for name, kernel in kernels.items():
        check(kernel, inputs, shape[5])
        calls[name] = lambda kernel=kernel: kernel(*inputs)
    calls["torch, fused"] = lambda: fused(*inputs, shape[5])

    device = torch.cuda.get_device_name() if on_gpu else "no GPU: the kernels run on the CPU, read no speed from this"
    mask = "full" if args.full else "causal"
    print(f"batch {args.batch}, {args.heads} heads, {args.seq} tokens, head dim {args.dim}, float16, {mask}; {device}")
    print(f"{'variant':24s} {'latency ms':>12s} {'sequences/s':>12s} {'speed-up':>9s}")
    latency = measure(calls, args.rounds)
    baseline = latency["torch, op by op"]
    for name, ms in latency.items():
        print(f"{name:24s} {ms:12.4f} {1e3 * args.batch / ms:12.1f} {baseline / ms:8.1f}x")
    if "+ tuned" in kernels:
        print(f"tuned configuration: {kernels['+ tuned'].config}")


if __name__ == "__main__":
    main()
