# SPDX-License-Identifier: Apache-2.0
"""`autotune`, the decorator above `tilelang.jit`, and `AutoTuner`, the same search as an object.

A tuned function is called like the jit function under it. Where the call sets none of the tunable parameters, the
search picks them; where it sets any, it gets exactly what it asked for and nothing is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from tilelang.autotuner.inputs import get_autotune_inputs
from tilelang.autotuner.measure import ProfileOptions
from tilelang.autotuner.result import AutotuneResult
from tilelang.autotuner.search import Problem, SearchOptions, search
from tilelang.autotuner.space import as_configs, resolve_configs, tunable_names
from tilelang.jit import JITImpl, jit
from tilelang.jit.decorator import JITOptions

__all__ = ["AutoTuner", "TunedJIT", "autotune"]

_PROFILE_FIELDS = frozenset(f.name for f in fields(ProfileOptions))
_COMPILE_FIELDS = frozenset(f.name for f in fields(JITOptions))
_SEARCH_FIELDS = frozenset(f.name for f in fields(SearchOptions))


class TunedJIT:
    """A jit function whose tunable parameters are searched. `result` is the last search's `AutotuneResult`."""

    def __init__(self, impl: JITImpl, configs: Any, profile: ProfileOptions, options: SearchOptions) -> None:
        self.impl = impl
        self.configs = configs
        self.profile = profile
        self.options = options
        self.result: AutotuneResult | None = None
        self._results: dict[Any, AutotuneResult] = {}  # by all arguments
        self._chosen: dict[Any, AutotuneResult] = {}  # by those that decide which configuration is fast
        self.__name__ = getattr(impl, "__name__", "tuned")
        self.__doc__ = impl.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Lazy functions: the best kernel. Eager ones: the outputs, computed by it."""
        if self._sets_tunables(args, kwargs):
            return self.impl(*args, **kwargs)
        result = self.tune(*args, **kwargs)
        return Problem(self.impl, args, kwargs).call(result.config) if self.impl.style == "eager" else result.kernel

    def tune(self, *args: Any, **kwargs: Any) -> AutotuneResult:
        """Search for these arguments, or find the search already made for them in this process. Arguments of
        `do_not_specialize` may differ: the configuration is the same for all of them."""
        problem = Problem(self.impl, args, kwargs)
        every, decisive = _memory_key(problem.named()), _memory_key(problem.named(self.profile.do_not_specialize))
        result = self._results.get(every) if every is not None else None
        if result is None and decisive is not None and decisive in self._chosen:
            result = problem.with_kernel(self._chosen[decisive])
        if result is None:
            result = self._search(problem)
        if every is not None:
            self._results[every] = self._chosen[decisive] = result
        self.result = result
        return result

    def _search(self, problem: Problem) -> AutotuneResult:
        configs = resolve_configs(self.configs, problem.args, problem.kwargs, self.impl.signature)
        tunable_names(self.impl.signature, configs)
        if self.impl.style == "lazy":
            self.impl.check_call(problem.args, {**configs[0], **problem.kwargs})
        inputs = get_autotune_inputs()
        if inputs is None and self.impl.style == "eager":
            inputs = [a for a in (*problem.args, *problem.kwargs.values()) if hasattr(a, "data_ptr")]
        return search(problem, configs, self.profile, self.options, inputs)

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """The best kernel for these arguments, or exactly the one asked for."""
        return (
            self.impl.compile(*args, **kwargs)
            if self._sets_tunables(args, kwargs)
            else self.tune(*args, **kwargs).kernel
        )

    def get_tir(self, *args: Any, **kwargs: Any) -> Any:
        """The tile program of the best configuration, or of the one asked for."""
        config = {} if self._sets_tunables(args, kwargs) else self.tune(*args, **kwargs).config
        return Problem(self.impl, args, kwargs).program(config)

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        return self.compile(*args, **kwargs).get_kernel_source()

    def _sets_tunables(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        configs = resolve_configs(self.configs, args, kwargs, self.impl.signature)
        return bool(tunable_names(self.impl.signature, configs) & set(Problem(self.impl, tuple(args), kwargs).named()))


def _memory_key(named: Mapping[str, Any]) -> Any:
    """A hashable name of a call, or None. Tensors count by shape, strides and type."""

    def one(value: Any) -> Any:
        if hasattr(value, "data_ptr"):
            return (tuple(value.shape), tuple(value.stride()), str(value.dtype), str(value.device))
        if isinstance(value, (list, tuple)):
            return tuple(one(v) for v in value)
        if isinstance(value, dict):
            return tuple(sorted((k, one(v)) for k, v in value.items()))
        return value

    key = one(dict(named))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def autotune(
    func: Any = None,
    *,
    configs: Any = None,
    warmup: float = 25,
    rep: float = 100,
    timeout: float = 100,
    supply_type: Any = None,
    ref_prog: Callable[..., Any] | None = None,
    supply_prog: Callable[..., Any] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    skip_check: bool = False,
    manual_check_prog: Callable[..., Any] | None = None,
    cache_input_tensors: bool = False,
    do_not_specialize: Sequence[str] | None = None,
    early_stop: bool = False,
    early_stop_factor: float = 2.0,
    max_trials: int = 200,
    num_workers: int | None = None,
    seed: int = 0,
) -> Callable[[JITImpl], TunedJIT]:
    """Search over `configs` (dictionaries, or a function of the call's arguments that returns them).

    Stands above `@tilelang.jit`. `warmup` and `rep` are ms, `timeout` seconds for one compilation. Spaces of more
    than `max_trials` configurations are sampled by Bayesian optimisation. Without a GPU the ranking is a static
    estimate. Raises ValueError for an empty list or a parameter that the function lacks, TypeError above anything but
    a jit function.
    """
    profile = ProfileOptions(
        warmup,
        rep,
        timeout,
        supply_type,
        ref_prog,
        supply_prog,
        rtol,
        atol,
        max_mismatched_ratio,
        skip_check,
        manual_check_prog,
        cache_input_tensors,
        do_not_specialize,
        early_stop,
        early_stop_factor,
    )
    if func is not None:
        raise TypeError("autotune takes keywords: @tilelang.autotune(configs=[...]) above @tilelang.jit")
    configs = as_configs(configs)

    def decorate(impl: JITImpl) -> TunedJIT:
        if not isinstance(impl, JITImpl):
            raise TypeError(f"autotune stands above @tilelang.jit, got {type(impl).__name__}")
        if not callable(configs):
            tunable_names(impl.signature, configs)
        return TunedJIT(impl, configs, profile, SearchOptions(max_trials, num_workers, seed))

    return decorate


# Ways to compile and to time that this search chooses by itself.
_CHOSEN = frozenset(
    {
        "use_pipeline",
        "enable_grouped_compile",
        "group_compile_size",
        "benchmark_devices",
        "benchmark_multi_gpu",
        "early_stop",
        "early_stop_factor",
    }
)


class AutoTuner:
    """The search as an object: `AutoTuner.from_kernel(fn, configs).set_profile_args(...).run(...)`."""

    def __init__(self, impl: JITImpl | Callable[..., Any], configs: Any) -> None:
        self._impl = impl if isinstance(impl, JITImpl) else jit(impl)
        self._configs = as_configs(configs)
        self._compile: dict[str, Any] = {}
        self._profile: dict[str, Any] = {"timeout": 30}

    @classmethod
    def from_kernel(cls, kernel: JITImpl | Callable[..., Any], configs: Any) -> AutoTuner:
        """A tuner of a jit function, or of a plain one that returns a program: all of its parameters have defaults or
        are set by the configurations."""
        return cls(kernel, configs)

    def set_compile_args(self, **options: Any) -> AutoTuner:
        """Keyword arguments of `tilelang.jit` that replace the function's own. TypeError for others."""
        unknown = sorted(set(options) - _COMPILE_FIELDS)
        if unknown:
            raise TypeError(f"unknown compile arguments {unknown}; there are {sorted(_COMPILE_FIELDS)}")
        self._compile.update(options)
        return self

    def set_profile_args(self, **options: Any) -> AutoTuner:
        """Fields of `ProfileOptions`: supply_type, ref_prog, supply_prog, rtol, atol, ... TypeError for others."""
        unknown = sorted(set(options) - _PROFILE_FIELDS)
        if unknown:
            raise TypeError(f"unknown profile arguments {unknown}; there are {sorted(_PROFILE_FIELDS)}")
        self._profile.update(options)
        return self

    def run(self, warmup: float = 25, rep: float = 100, timeout: float = 180, **options: Any) -> AutotuneResult:
        """Search; `options` are max_trials, num_workers and seed.

        use_pipeline, enable_grouped_compile and the like are accepted: how to compile and to time is chosen here.
        TypeError for others.
        """
        early = {k: v for k, v in options.items() if k.startswith("early_stop")}
        options = {k: v for k, v in options.items() if k not in _CHOSEN}
        unknown = sorted(set(options) - _SEARCH_FIELDS)
        if unknown:
            raise TypeError(f"unknown search arguments {unknown}; there are {sorted(_SEARCH_FIELDS | _CHOSEN)}")
        impl = self._impl.with_options(**self._compile) if self._compile else self._impl
        profile = ProfileOptions(**{**self._profile, **early, "warmup": warmup, "rep": rep, "timeout": timeout})
        configs = resolve_configs(self._configs, (), {}, impl.signature)
        tunable_names(impl.signature, configs)
        return search(Problem(impl, (), {}), configs, profile, SearchOptions(**options), get_autotune_inputs())
