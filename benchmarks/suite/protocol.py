# SPDX-License-Identifier: Apache-2.0
"""How a call is timed.

A power-capped card slows down within milliseconds of dense work, so what ran before decides what is measured. Hence:

* burst: sleep 40 ms, warm up for 3 ms, then the median of 12 ms of calls, each behind a write that flushes L2;
* kernels alone: the mean of the profiler, behind such writes too, which counts no start of a launch;
* rotating: calls over inputs that together exceed L2 follow each other, and their time is divided by their number;
* sustained: a contestant runs alone for 300 ms, the second half counts, and the first peer runs before and after it.

Every call is captured in a CUDA graph where it can be, and the captured outputs are the ones that are checked: a peer
that is bound by its host side would otherwise lose small shapes for no reason of its kernel. What cannot be captured is
timed as it is, and the row says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

__all__ = [
    "Call", "Clock", "Flushed", "HostTime", "KernelTime", "Rotating", "SelfTimed", "Timed", "is_lost", "sustained_ms",
]  # fmt: skip

PAUSE_S = 0.04
WARM_MS, MEASURE_MS = 3.0, 12.0
MAX_CALLS = 120  # of a burst: 12 ms of very short calls would be a thousand flushes
FLUSH_BYTES = 256 << 20  # several times the largest L2
SUSTAINED_S = 0.3

Call = Callable[[], Any]
_flush: dict[str, torch.Tensor] = {}


@dataclass
class Timed:
    """A contestant that is ready: `outputs` of its first call, `sample()` gives milliseconds a call, `replay()` runs
    `count` calls without timing them. One of another process gives its `error` instead of outputs, its time under load
    by `sustained(seconds)` instead of replays, and is told that its turns are over by `close()`."""

    outputs: Any
    sample: Callable[[], float]
    replay: Callable[[], Any]
    count: int = 1
    uncaptured: str = ""
    note: str = ""  # what a reader of the result should know of it
    error: float | None = None
    sustained: Callable[[float], float] | None = None
    close: Callable[[], Any] = lambda: None


class Clock(Protocol):
    """Makes calls ready to be timed."""

    def start(self, calls: Sequence[Call]) -> Timed: ...


class Flushed:
    """Bursts of one call, L2 flushed before each."""

    def start(self, calls: Sequence[Call]) -> Timed:
        call = calls[0]
        if not torch.cuda.is_available():
            return _by_wall(call)
        replay, outputs, why = _captured(calls[:1])
        return Timed(outputs[0], lambda: _burst(replay), replay, 1, why)


class Rotating:
    """Calls over several sets of inputs in a row: the reuse of weights in L2 that no program has is left out."""

    def start(self, calls: Sequence[Call]) -> Timed:
        if not torch.cuda.is_available():
            return _by_wall(calls[0])
        replay, outputs, why = _captured(calls)

        def sample() -> float:
            time.sleep(PAUSE_S)
            replay()
            estimate = max(_between(replay, 1), 1e-3)
            runs = max(1, min(MAX_CALLS, int(MEASURE_MS / estimate)))
            return _between(replay, runs) / len(calls)

        return Timed(outputs[0], sample, replay, len(calls), why)


class KernelTime:
    """What the kernels of a call take by the profiler, L2 flushed before each: without the start of a launch."""

    def start(self, calls: Sequence[Call]) -> Timed:
        call = calls[0]
        if not torch.cuda.is_available():
            return _by_wall(call)
        outputs = call()

        def sample() -> float:
            from tilelang.profiler import do_bench  # that of the process: public TileLang has one of this name

            time.sleep(PAUSE_S)
            return float(do_bench(call, warmup=WARM_MS, rep=MEASURE_MS, backend="cupti"))

        return Timed(outputs, sample, call)


class HostTime:
    """Host milliseconds a call: bursts of calls that the device keeps up with, waited for outside the time."""

    def __init__(self, calls_a_burst: int = 200, bursts: int = 5) -> None:
        self.calls_a_burst, self.bursts = calls_a_burst, bursts

    def start(self, calls: Sequence[Call]) -> Timed:
        call = calls[0]
        outputs = call()

        def sample() -> float:
            found = []
            for _ in range(self.bursts):
                _wait()
                start = time.perf_counter()
                for _ in range(self.calls_a_burst):
                    call()
                found.append((time.perf_counter() - start) / self.calls_a_burst * 1e3)
                _wait()
            return statistics.median(found)

        return Timed(outputs, sample, call)


class SelfTimed:
    """Calls that give their own milliseconds, one a sample."""

    def start(self, calls: Sequence[Call]) -> Timed:
        return Timed(None, lambda: float(calls[0]()), calls[0])


def sustained_ms(timed: Timed, seconds: float = SUSTAINED_S) -> float:
    """Milliseconds a call under load: the second half of `seconds` of calls."""
    if timed.sustained is not None:
        return timed.sustained(seconds)
    timed.replay()
    estimate = max(_between(timed.replay, 1), 1e-3)
    half = max(1, int(seconds * 500 / estimate))
    for _ in range(half):
        timed.replay()
    return _between(timed.replay, half) / timed.count


def is_lost() -> bool:
    """Whether a kernel's failure has taken the CUDA context with it."""
    try:
        _wait()
    except Exception:  # such a failure is reported by every later call
        return True
    return False


def _captured(calls: Sequence[Call]) -> tuple[Call, list[Any], str]:
    """(what runs the calls, their outputs, why they are not in a graph: "" where they are)."""
    for _ in range(2):  # lazily made workspaces, autotuning, and modules that are loaded on first use
        outputs = [call() for call in calls]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            outputs = [call() for call in calls]
        graph.replay()
        torch.cuda.synchronize()
    except Exception as failure:  # a peer that cannot be captured is timed as it is
        torch.cuda.synchronize()
        outputs = [call() for call in calls]
        return (lambda: [call() for call in calls]), outputs, f"{type(failure).__name__}: {str(failure)[:200]}"
    inputs = list(calls)  # a graph does not keep the tensors alive that it reads

    def replay(_held: list[Call] = inputs) -> None:
        graph.replay()

    return replay, outputs, ""


def _burst(replay: Call) -> float:
    time.sleep(PAUSE_S)
    replay()
    torch.cuda.synchronize()
    estimate = max(_between(replay, 3), 1e-3)
    for _ in range(max(1, min(MAX_CALLS, int(WARM_MS / estimate)))):
        replay()
    count = max(3, min(MAX_CALLS, int(MEASURE_MS / estimate)))
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    flush = _flush_buffer()
    for start, end in events:
        flush.zero_()
        start.record()
        replay()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def _flush_buffer() -> torch.Tensor:
    if "buffer" not in _flush:
        _flush["buffer"] = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    return _flush["buffer"]


def _between(replay: Call, runs: int) -> float:
    """Milliseconds of `runs` runs, divided by them."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(runs):
        replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / runs


def _by_wall(call: Call) -> Timed:
    """Without a device: the wall clock, once."""
    outputs = call()

    def sample() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    return Timed(outputs, sample, call, 1, "no device")


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
