# SPDX-License-Identifier: Apache-2.0
"""`do_bench`: the time of a call in milliseconds.

On a CUDA device the L2 cache is flushed before each timed call by writing a buffer larger than it, and events on the
current stream give the time. Without a device the wall clock does.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["do_bench"]

_ESTIMATE_RUNS = 5
_GRAPH_REPLAYS = 10
_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
}


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    fast_flush: bool = True,
    backend: str = "event",
    return_mode: str = "mean",
    device: Any = None,
    cache_size: int = 256,
    early_stop_baseline: float | None = None,
) -> Any:
    """Milliseconds a call of `fn`: one number, or a list where `quantiles` are asked for.

    `warmup` and `rep` are budgets in ms, from which the numbers of calls follow unless `_n_warmup` and `_n_repeat`
    set them. `cache_size` is the flushed buffer in MB. `backend` is event, cupti (kernel time by the torch profiler:
    the mean only, `ValueError` for another return_mode and for quantiles) or cudagraph. Where a first estimate is
    already slower than `early_stop_baseline` (ms), that estimate is returned.
    """
    if return_mode not in _MODES:
        raise ValueError(f"return_mode is one of {', '.join(_MODES)}, got {return_mode!r}")
    if backend not in ("event", "cupti", "cudagraph", "wall"):
        raise ValueError(f"backend is event, cupti, cudagraph or wall, got {backend!r}")
    if backend == "cupti" and (quantiles is not None or return_mode != "mean"):
        raise ValueError("backend cupti gives the mean alone: leave quantiles and return_mode out, or take event")
    if quantiles is not None and not all(0 <= q <= 1 for q in quantiles):
        raise ValueError(f"quantiles are numbers from 0 to 1, got {list(quantiles)}")
    import torch

    if backend == "wall" or not torch.cuda.is_available():
        clock: _Clock = _WallClock(fn)
    else:
        clock = _CudaClock(fn, torch.device(device if device is not None else "cuda"), cache_size, fast_flush)
    fn()
    clock.sync()
    estimate = max(statistics.fmean(clock.times(_ESTIMATE_RUNS)), 1e-6)
    if early_stop_baseline is not None and estimate > early_stop_baseline:
        return estimate if quantiles is None else [estimate] * len(quantiles)
    n_warmup = _n_warmup or max(1, int(warmup / estimate))
    n_repeat = _n_repeat or max(1, int(rep / estimate))
    for _ in range(n_warmup):
        fn()
    clock.sync()
    if isinstance(clock, _CudaClock) and backend == "cupti":
        return clock.kernel_time(n_repeat)
    if isinstance(clock, _CudaClock) and backend == "cudagraph":
        times = clock.graph_times(n_repeat)
    else:
        times = clock.times(n_repeat)
    return _summary(times, quantiles, return_mode)


def _summary(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    if quantiles is None:
        return float(_MODES[return_mode](times))
    ordered = sorted(times)
    found = [_quantile(ordered, q) for q in quantiles]
    return found[0] if len(found) == 1 else found


def _quantile(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


class _Clock:
    def sync(self) -> None:
        """Waits for all calls made."""

    def times(self, count: int) -> list[float]:
        """Milliseconds of each of `count` calls."""
        raise NotImplementedError


class _WallClock(_Clock):
    def __init__(self, fn: Callable[[], Any]) -> None:
        self.fn = fn

    def times(self, count: int) -> list[float]:
        found = []
        for _ in range(count):
            start = time.perf_counter()
            self.fn()
            found.append((time.perf_counter() - start) * 1e3)
        return found


class _CudaClock(_Clock):
    def __init__(self, fn: Callable[[], Any], device: Any, cache_mb: int, fast_flush: bool) -> None:
        import torch

        self.fn = fn
        self.device = device
        width = torch.int32 if fast_flush else torch.int8
        self.cache = torch.empty(cache_mb * 2**20 // width.itemsize, dtype=width, device=device)

    def sync(self) -> None:
        import torch

        torch.cuda.synchronize(self.device)

    def times(self, count: int) -> list[float]:
        import torch

        starts = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
        for start, end in zip(starts, ends):
            self.cache.zero_()
            start.record()
            self.fn()
            end.record()
        self.sync()
        return [start.elapsed_time(end) for start, end in zip(starts, ends)]

    def graph_times(self, count: int) -> list[float]:
        """Milliseconds a call, for each replay of a graph of `count` calls; the cache is flushed between replays
        only.
        """
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                self.fn()
        found = []
        for _ in range(_GRAPH_REPLAYS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.cache.zero_()
            start.record()
            graph.replay()
            end.record()
            self.sync()
            found.append(start.elapsed_time(end) / count)
        return found

    def kernel_time(self, count: int) -> float:
        """Mean kernel milliseconds a call, the flush taken out."""
        import torch

        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(count):
                self.cache.zero_()
                self.fn()
            self.sync()
        flush = 0.0
        total = 0.0
        for event in profiler.key_averages():
            microseconds = float(event.self_device_time_total)
            total += microseconds
            if "FillFunctor" in event.key or "Memset" in event.key:
                flush = max(flush, microseconds)
        return (total - flush) / count / 1e3
