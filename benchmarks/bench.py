# SPDX-License-Identifier: Apache-2.0
"""Times the project's kernels beside their peers on this machine's GPU, after checking every one of them.

Protocol: a power-capped card slows down within milliseconds of dense work, so what ran before decides what is
measured. Each timing therefore sleeps 40 ms, warms up for 3 ms and takes the median of 12 ms of calls (L2 flushed
before each); contestants take turns, in reversed order every other round, and the median of the rounds counts. Ratios
inside one table hold; numbers of different runs do not compare.

    python benchmarks/bench.py --commit $(git rev-parse --short HEAD) [--only gemm attention] [--rounds 9]

Writes benchmarks/results/<card>-<date>.json: the card, driver, versions and commit, and every number.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import tilelang

ROOT = Path(__file__).resolve().parent.parent
for folder in ("gemm", "flash_attention"):
    sys.path.insert(0, str(ROOT / "examples" / folder))

from example_gemm import matmul  # noqa: E402  (the examples are no packages)
from example_mha_fwd_bhsd import flashattn, flops, fused, reference  # noqa: E402

PAUSE_S = 0.04
REPEATS = 50  # launches that must agree bit for bit
# Largest relative error against float32. A float16 output is rounded by 2e-4, float16 probabilities add about as much.
GEMM_LIMIT, ATTENTION_LIMIT, BF16_LIMIT = 4e-3, 2e-3, 1e-2

# Tiles that won the example's search on an H200 where the defaults did not, by (head dimension, causal).
BEST_TILES = {
    (64, False): {"block_M": 192, "block_N": 128, "num_stages": 2, "threads": 384},
    (64, True): {"block_M": 64, "block_N": 128, "num_stages": 2, "threads": 128},
}

# A first compilation in a new process, imports excluded, nothing cached.
COLD_COMPILE = """
import sys, time
sys.path[:0] = {paths!r}
import torch, tilelang, tilelang.transform.pipeline as pipeline, tilelang.codegen.compile, tilelang.codegen.cuda
from {module} import {factory}
ctx = pipeline.Context(tilelang.target.arch.arch_of("sm_90a"))
start = time.perf_counter(); kernel = {factory}{arguments}; total = time.perf_counter() - start
pipeline.lower({factory}.get_tir{arguments}, ctx.arch, context=ctx)
print(total, sum(ctx.seconds.values()))
"""

Call = Callable[[], torch.Tensor]


@dataclass
class Row:
    """One shape: milliseconds and relative error of every contestant, and what went wrong."""

    name: str
    work: float  # floating-point operations, 0 where they say nothing
    ms: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Frobenius norm of the difference over that of the reference; NaN stays NaN."""
    return ((got.float() - want.float()).norm() / want.float().norm().clamp_min(1e-30)).item()


def contest(
    name: str, work: float, want: torch.Tensor, calls: dict[str, Callable[[], Call]], limit: float, rounds: int
) -> Row:
    """Check each contestant against `want`, then time those that are right."""
    row = Row(name, work)
    ready: dict[str, Call] = {}
    for label, prepare in calls.items():
        try:
            call = prepare()
            row.error[label] = relative_error(call(), want)
            torch.cuda.synchronize()
        except Exception as failure:  # a peer that cannot run this shape must not end the run
            row.failed[label] = f"{type(failure).__name__}: {str(failure)[:300]}"
            continue
        # Rounding the output to bf16 alone costs 1.7e-3; `not <` also catches NaN.
        if not row.error[label] < (BF16_LIMIT if label.endswith("bf16") else limit):
            row.failed[label] = f"relative error {row.error[label]:.2e}"
            continue
        ready[label] = call
    times: dict[str, list[float]] = {label: [] for label in ready}
    for turn in range(rounds):
        for label in list(ready) if turn % 2 == 0 else list(ready)[::-1]:
            time.sleep(PAUSE_S)
            times[label].append(tilelang.profiler.do_bench(ready[label], warmup=3, rep=12, return_mode="median"))
    row.ms = {label: statistics.median(values) for label, values in times.items()}
    return row


def show(row: Row) -> None:
    for label in [*row.ms, *row.failed]:
        if label in row.failed:
            print(f"{row.name:34s} {label:12s} FAILED {row.failed[label]}")
            continue
        rate = f"{row.work / row.ms[label] * 1e-9:8.1f} TFLOP/s" if row.work else " " * 16
        print(f"{row.name:34s} {label:12s} {row.ms[label]:9.4f} ms {rate}  error {row.error[label]:.2e}", flush=True)


def gemm(rounds: int) -> Iterator[Row]:
    """bf16 products, B stored (N, K) and (K, N)."""
    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024), (4096, 4096, 14336)):
        for transposed in (True, False):
            yield gemm_row(m, n, k, transposed, rounds)


def gemm_row(m: int, n: int, k: int, transposed: bool, rounds: int, **tiles: int) -> Row:
    a = torch.randn(m, k, device="cuda").bfloat16()
    b = torch.randn(*((n, k) if transposed else (k, n)), device="cuda").bfloat16()
    b_logical = b.T if transposed else b
    calls: dict[str, Callable[[], Call]] = {
        "tilelang": lambda: _ours_gemm(m, n, k, transposed, a, b, **tiles),
        "cublas": lambda: lambda: a @ b_logical,
    }
    name = f"gemm bf16 {m}x{n}x{k} {'NT' if transposed else 'NN'}"
    return contest(name, 2.0 * m * n * k, a.float() @ b_logical.float(), calls, GEMM_LIMIT, rounds)


def _ours_gemm(m: int, n: int, k: int, transposed: bool, a: torch.Tensor, b: torch.Tensor, **tiles: int) -> Call:
    kernel = matmul(m, n, k, "bfloat16", False, transposed, **tiles)
    return lambda: kernel(a, b)


def attention(rounds: int) -> Iterator[Row]:
    """Forward passes in float16; the FLOPs of a causal one are those of the visible pairs."""
    for batch, heads, seq, dim in ((1, 12, 2048, 64), (4, 32, 4096, 64), (4, 16, 4096, 128), (1, 16, 16384, 128)):
        for causal in (True, False):
            yield attention_row(batch, heads, seq, seq, dim, causal, rounds, peers=True)


def attention_row(
    batch: int, heads: int, seq_q: int, seq_kv: int, dim: int, causal: bool, rounds: int, peers: bool
) -> Row:
    shape = (batch, heads, seq_q, seq_kv, dim)
    q = torch.randn(batch, heads, seq_q, dim, device="cuda").half()
    k, v = (torch.randn(batch, heads, seq_kv, dim, device="cuda").half() for _ in range(2))
    calls: dict[str, Callable[[], Call]] = {"tilelang": lambda: _ours_attention(shape, causal, {}, q, k, v)}
    if peers:
        best = BEST_TILES.get((dim, causal), {})
        if best:
            calls["tilelang best"] = lambda: _ours_attention(shape, causal, best, q, k, v)
        calls["sdpa flash"] = lambda: _sdpa("FLASH_ATTENTION", q, k, v, causal)
        calls["sdpa cudnn"] = lambda: _sdpa("CUDNN_ATTENTION", q, k, v, causal)
        calls["fa3 bf16"] = lambda: _fa3(q, k, v, causal)
    name = f"attention B{batch} H{heads} {seq_q}x{seq_kv} D{dim} {'causal' if causal else 'full'}"
    return contest(name, flops(*shape, causal), _reference(q, k, v, causal), calls, ATTENTION_LIMIT, rounds)


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """float32 attention one head at a time: the scores of all heads at once need not fit."""
    out = torch.empty_like(q, dtype=torch.float32)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            at = (slice(b, b + 1), slice(h, h + 1))
            out[at] = reference(q[at], k[at], v[at], causal)
    return out


def _ours_attention(shape: tuple[int, ...], causal: bool, tiles: dict[str, int], *inputs: torch.Tensor) -> Call:
    kernel = flashattn(*shape, causal, **tiles)
    return lambda: kernel(*inputs)


def _sdpa(backend: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Call:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call() -> torch.Tensor:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return fused(q, k, v, causal)

    return call


def _fa3(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Call:
    """FlashAttention-3 where it is installed, in the type that every build of it has."""
    for name in ("flash_attn_interface", "fa3_fwd_interface"):
        if importlib.util.find_spec(name) is not None:
            interface = importlib.import_module(name)
            break
    else:
        raise ModuleNotFoundError("FlashAttention-3 is not installed")
    q, k, v = (x.transpose(1, 2).contiguous().bfloat16() for x in (q, k, v))

    def call() -> torch.Tensor:
        out = interface.flash_attn_func(q, k, v, causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return call


def ragged(rounds: int) -> Iterator[Row]:
    """Sizes that no tile divides: right first, then timed."""
    for m, n, k in ((1000, 1000, 520), (1, 4096, 4096), (4096, 1000, 520)):
        yield gemm_row(m, n, k, True, rounds)
    for seq_q, seq_kv, causal in ((1000, 1000, True), (1000, 1000, False), (300, 1000, True), (1, 1000, False)):
        yield attention_row(2, 4, seq_q, seq_kv, 64, causal, rounds, peers=False)


def repeat(rounds: int) -> Iterator[Row]:
    """The same launch many times: a result that moves by one bit is a race."""
    a, b = (torch.randn(2048, 2048, device="cuda").bfloat16() for _ in range(2))
    q, k, v = (torch.randn(2, 8, 2048, 64, device="cuda").half() for _ in range(3))
    calls = {
        "gemm 2048^3": lambda: _ours_gemm(2048, 2048, 2048, True, a, b),
        "attention S2048 D64": lambda: _ours_attention((2, 8, 2048, 2048, 64), True, {}, q, k, v),
    }
    for name, prepare in calls.items():
        row = Row(f"{name}, {REPEATS} launches", 0.0)
        try:
            call = prepare()
            first = call().clone()
            differing = sum(not torch.equal(call(), first) for _ in range(REPEATS))
            row.error["tilelang"] = float(differing)
            if differing:
                row.failed["tilelang"] = f"{differing} of {REPEATS} launches differ from the first"
            else:
                row.ms["tilelang"] = tilelang.profiler.do_bench(call, warmup=3, rep=12, return_mode="median")
        except Exception as failure:  # the other rows still count
            row.failed["tilelang"] = f"{type(failure).__name__}: {str(failure)[:300]}"
        yield row


def compile_seconds() -> dict[str, dict[str, float]]:
    """Seconds of a cold compilation in a process of its own, and of our passes alone (measured once warm)."""
    out = {}
    for module, factory, arguments in (
        ("example_gemm", "matmul", "(4096, 4096, 4096)"),
        ("example_mha_fwd_bhsd", "flashattn", "(1, 12, 2048, 2048, 64, True)"),
    ):
        paths = [str(ROOT), *(str(ROOT / "examples" / f) for f in ("gemm", "flash_attention"))]
        code = COLD_COMPILE.format(paths=paths, module=module, factory=factory, arguments=arguments)
        with tempfile.TemporaryDirectory() as cache:
            env = {**os.environ, "TILELANG_CACHE_DIR": cache}
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        words = done.stdout.split()
        out[factory] = {"total": float(words[0]), "passes": float(words[1])} if len(words) == 2 else {"failed": 1.0}
        print(f"cold compilation of {factory}: {words or done.stderr[-300:]}", flush=True)
    return out


def facts(commit: str) -> dict[str, Any]:
    """What the numbers were measured on."""
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    if not commit:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT)
        commit = found.stdout.strip() or "unknown"
    packages = {}
    for name in ("apache-tvm", "apache-tvm-ffi", "torch", "numpy", "fa3-fwd"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = ""
    return {
        "card": torch.cuda.get_device_name(),
        "driver": driver,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "packages": packages,
        "commit": commit,
        "date": dt.date.today().isoformat(),
    }


GROUPS: dict[str, Callable[[int], Iterator[Row]]] = {
    "gemm": gemm,
    "attention": attention,
    "ragged": ragged,
    "repeat": repeat,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="", help="commit measured, where there is no git")
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return 1
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False  # the references are float32
    torch.set_float32_matmul_precision("highest")
    record: dict[str, Any] = {"facts": facts(args.commit), "compile_seconds": compile_seconds(), "rows": []}
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"{record['facts']['card'].replace(' ', '-')}-{record['facts']['date']}.json"
    for group in args.only:
        for row in GROUPS[group](args.rounds):
            show(row)
            record["rows"].append({"group": group, **asdict(row)})
            path.write_text(json.dumps(record, indent=1) + "\n")  # after every row: a killed run keeps what it has
    failed = sum("tilelang" in row["failed"] for row in record["rows"])
    print(f"{path}; {failed} of {len(record['rows'])} rows without a result of ours")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
