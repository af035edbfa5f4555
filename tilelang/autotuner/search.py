# SPDX-License-Identifier: Apache-2.0
"""One search from the list of configurations to the result: compile, check, time, keep the best.

With a GPU, batches of candidates are compiled by worker processes and timed one after another in this one. Without, no
candidate is compiled but the one that the static estimate puts first (or the next that compiles).
"""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tilelang.autotuner import store
from tilelang.autotuner.estimate import estimate_ms
from tilelang.autotuner.measure import Bench, ProfileOptions
from tilelang.autotuner.result import AutotuneResult, Trial
from tilelang.autotuner.space import COMPILE_KEYS, Config, propose
from tilelang.autotuner.worker import compile_in_processes
from tilelang.jit import performance
from tilelang.support.env import env
from tilelang.support.errors import PerformanceWarning

__all__ = ["SearchOptions", "search"]

log = logging.getLogger("tilelang.autotuner")


@dataclass(frozen=True)
class SearchOptions:
    """How wide and how long to search."""

    max_trials: int = 200  # spaces up to this size are tried whole, larger ones are sampled by optuna
    num_workers: int | None = (
        None  # compile processes; None = what the environment says, else 90 % of the CPUs, at most 16
    )
    seed: int = 0


@dataclass(frozen=True)
class Problem:
    """What is tuned: a jit function with the arguments that do not change."""

    impl: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def named(self, without: Sequence[str] | None = None) -> dict[str, Any]:
        """The arguments by name, those of a `*args` by position; those called `without` are left out."""
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [p.name for p in self.impl.signature.parameters.values() if p.kind in kinds]
        names += [str(n) for n in range(len(names), len(self.args))]
        return {k: v for k, v in {**dict(zip(names, self.args)), **self.kwargs}.items() if k not in (without or ())}

    def with_kernel(self, result: AutotuneResult) -> AutotuneResult:
        """A result of other arguments, with the kernel of its configuration for these."""
        kernel = self.compile(result.config)
        kernel.config = dict(result.config)
        return replace(result, kernel=kernel)

    def program(self, config: Config) -> Any:
        """The tile program of a configuration."""
        return self.impl.get_tir(*self.args, **self.kwargs, **_without(config, COMPILE_KEYS))

    def compile(self, config: Config) -> Any:
        """The kernel of a configuration, from the cache where it is there."""
        return self._with_options(config).compile(*self.args, **self.kwargs, **_without(config, COMPILE_KEYS))

    def call(self, config: Config) -> Any:
        """What the function gives under a configuration: a kernel, of an eager one the outputs."""
        return self._with_options(config)(*self.args, **self.kwargs, **_without(config, COMPILE_KEYS))

    def _with_options(self, config: Config) -> Any:
        """The function under the options of the compilation that a configuration carries."""
        return self.impl.with_options(**_only(config, COMPILE_KEYS)) if COMPILE_KEYS & set(config) else self.impl

    def compile_options(self, config: Config) -> dict[str, Any]:
        """Keyword arguments of `tilelang.compile` that give the same cache entry as `compile`."""
        return {**{k: getattr(self.impl.options, k) for k in _OPTION_NAMES}, **_only(config, COMPILE_KEYS)}


# The decorator's options that `tilelang.compile` takes too.
_OPTION_NAMES = ("out_idx", "target", "execution_backend", "pass_configs", "compile_flags")


def _only(config: Config, names: frozenset[str]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k in names}


def _without(config: Config, names: frozenset[str]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in names}


def search(
    problem: Problem,
    configs: Sequence[Config],
    profile: ProfileOptions,
    options: SearchOptions,
    inputs: list[Any] | None,
) -> AutotuneResult:
    """The best of `configs`. Raises RuntimeError, with every candidate's reason, when none works."""
    if not _has_gpu():
        return _rank_by_estimate(problem, configs)
    keeps = not env.cache_disabled.get() and not env.tuner_cache_disabled.get()
    key = _search_key(problem, configs, profile) if keeps else None
    folder = env.cache_dir.get() / "autotuner"
    stored = store.load(folder, key) if key is not None else None
    if stored is not None:
        trials = tuple(Trial(**trial) for trial in stored["trials"])
        return _finish(
            problem.compile(stored["config"]), stored["config"], stored["latency"], True, trials, stored["ref_latency"]
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)  # what counts is the time of a candidate
        result = _measure_all(problem, configs, profile, options, inputs)
    performance.warn(getattr(result.kernel.artifact, "performance", ()))
    if key is not None:
        record = {
            "config": dict(result.config),
            "latency": result.latency,
            "ref_latency": result.ref_latency,
            "trials": [{"config": dict(t.config), "latency": t.latency, "error": t.error} for t in result.trials],
        }
        store.store(folder, key, record)
    return result


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _search_key(problem: Problem, configs: Sequence[Config], profile: ProfileOptions) -> str | None:
    if profile.ref_prog or profile.supply_prog or profile.manual_check_prog:
        return None  # what a callback does has no key
    import torch

    import tilelang

    arguments = {k: _describe(v) for k, v in problem.named(profile.do_not_specialize).items()}
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    facts = {
        "version": tilelang.__version__,
        "device": device.name,
        "capability": [device.major, device.minor],
        "options": {k: str(v) for k, v in problem.compile_options({}).items()},
        "profile": [
            *(profile.warmup, profile.rep, profile.rtol, profile.atol, profile.max_mismatched_ratio),
            *(profile.skip_check, str(profile.supply_type)),
        ],
    }
    return store.search_key(problem.impl.func, arguments, configs, facts)


def _describe(value: Any) -> Any:
    """A tensor counts by its shape, strides and type: its values do not decide which configuration is fast."""
    if hasattr(value, "stride") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return [list(value.shape), list(value.stride()), str(value.dtype)]
    return value


def _measure_all(
    problem: Problem,
    configs: Sequence[Config],
    profile: ProfileOptions,
    options: SearchOptions,
    inputs: list[Any] | None,
) -> AutotuneResult:
    workers = options.num_workers or env.tuner_workers.get() or _default_workers()
    bench = Bench(profile, inputs)
    trials: list[Trial] = []
    best: tuple[float, Config, Any] | None = None
    for batch, tell in propose(configs, options.max_trials, batch=max(8, workers), seed=options.seed):
        costs: list[float | None] = []
        for config, kernel, error in _compile_batch(problem, batch, workers, profile.timeout):
            latency = None
            if kernel is not None:
                try:
                    latency = bench.time(kernel, best[0] if best else None)
                except Exception as failure:  # the boundary of a measured candidate: recorded, never fatal
                    error = f"{type(failure).__name__}: {failure}"
            trials.append(Trial(config, latency, error))
            costs.append(latency)
            log.info("%s: %s", config, f"{latency:.4f} ms" if latency is not None else error)
            if latency is not None and (best is None or latency < best[0]):
                best = (latency, config, kernel)
        tell(costs)
    if best is None:
        raise RuntimeError(_none_worked(trials))
    return _finish(best[2], best[1], best[0], True, tuple(trials), bench.ref_latency)


def _default_workers() -> int:
    count = int(env.tuner_cpu_share.get() * len(os.sched_getaffinity(0)))
    return max(1, min(env.tuner_most_workers.get() or count, count))


def _compile_batch(
    problem: Problem, batch: Sequence[Config], workers: int, timeout_s: float
) -> list[tuple[Config, Any, str]]:
    """(configuration, kernel or None, error) for each; kernels come from the disk cache that the workers filled."""
    if len(batch) > 1 and workers > 1 and not env.cache_disabled.get():
        programs, errors = [], {}
        for n, config in enumerate(batch):
            try:
                programs.append((n, problem.program(config)))
            except Exception as error:  # the boundary of a measured candidate: recorded, never fatal
                errors[n] = f"{type(error).__name__}: {error}"
        found = compile_in_processes(
            [program for _, program in programs],
            [problem.compile_options(batch[n]) for n, _ in programs],
            workers,
            timeout_s,
        )
        errors.update({n: error for (n, _), error in zip(programs, found, strict=True) if error})
    else:
        errors = {}

    def load(n: int) -> tuple[Config, Any, str]:
        if n in errors:
            return batch[n], None, errors[n]
        try:
            return batch[n], problem.compile(batch[n]), ""
        except Exception as error:  # the boundary of a measured candidate: recorded, never fatal
            return batch[n], None, f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(max_workers=workers) as pool:
        return list(pool.map(load, range(len(batch))))


def _rank_by_estimate(problem: Problem, configs: Sequence[Config]) -> AutotuneResult:
    log.warning("no GPU found: %d configurations are ranked by a static estimate, none was timed", len(configs))
    trials: list[Trial] = []
    for config in configs:
        try:
            trials.append(Trial(config, estimate_ms(problem.program(config))))
        except Exception as error:  # the boundary of a candidate: recorded, never fatal
            trials.append(Trial(config, None, f"{type(error).__name__}: {error}"))
    ranked = sorted((t for t in trials if t.latency is not None), key=lambda t: t.latency or 0.0)
    for trial in ranked:
        try:
            kernel = problem.compile(trial.config)
        except Exception as error:  # the boundary of a candidate: recorded, never fatal
            trials[trials.index(trial)] = Trial(trial.config, None, f"{type(error).__name__}: {error}")
            continue
        assert trial.latency is not None
        return _finish(kernel, trial.config, trial.latency, False, tuple(trials), None)
    raise RuntimeError(_none_worked(trials))


def _finish(
    kernel: Any, config: Config, latency: float, measured: bool, trials: tuple[Trial, ...], ref_latency: float | None
) -> AutotuneResult:
    """The result; what was measured is also left on the kernel."""
    kernel.config = dict(config)
    if measured:
        kernel.latency = latency
        kernel.ref_latency = ref_latency
    return AutotuneResult(dict(config), latency, measured, trials, kernel, ref_latency)


def _none_worked(trials: Sequence[Trial]) -> str:
    lines = [f"none of the {len(trials)} configurations works:"]
    lines += [f"  {dict(t.config)}: {t.error.strip().splitlines()[0] if t.error.strip() else 'failed'}" for t in trials]
    return "\n".join(lines)
