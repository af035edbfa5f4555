# SPDX-License-Identifier: Apache-2.0
"""The search space, and which of its configurations to try next.

A space is a list of dictionaries over the same parameters. Small spaces are tried whole. Larger ones are sampled by
Bayesian optimisation (optuna's TPE) in batches as wide as there are compile workers; each configuration is tried once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Config", "as_configs", "propose", "resolve_configs", "tunable_names"]

Config = Mapping[str, Any]

# Not a parameter of the function: options of the compilation that a configuration may carry.
COMPILE_KEYS = frozenset({"pass_configs", "compile_flags"})


def as_configs(configs: Any) -> Any:
    """What a program gives as configurations: a function of the call, or a list. Raises TypeError for what is neither
    a list nor made of dictionaries, ValueError for an empty one."""
    if callable(configs):
        return configs
    if configs is None or isinstance(configs, Mapping | str) or not isinstance(configs, Iterable):
        raise TypeError(
            f"configs is a list of dictionaries, [{{'block_M': 64}}, {{'block_M': 128}}], or a function that returns "
            f"one, got {type(configs).__name__}"
        )
    found = list(configs)
    wrong = next((c for c in found if not isinstance(c, Mapping)), None)
    if wrong is not None:
        raise TypeError(f"a configuration is a dictionary of parameters, {{'block_M': 64}}, got {wrong!r}")
    if not found:
        raise ValueError("autotune needs at least one configuration")
    return found


def resolve_configs(
    configs: Any, args: Sequence[Any], kwargs: Mapping[str, Any], signature: inspect.Signature | None = None
) -> list[dict[str, Any]]:
    """The configurations as a list; a callable gets as many of the call's arguments as it takes.

    A parameter that only some of them set is the function's default in the others (ValueError where it has none).
    """
    if callable(configs):
        configs = _call_with_fitting(configs, args, kwargs)
    found = [dict(config) for config in as_configs(configs)]
    names = list(dict.fromkeys(name for config in found for name in config if name not in COMPILE_KEYS))
    parameters = signature.parameters if signature is not None else {}
    for config in found:
        for name in names:
            if name in config:
                continue
            default = parameters[name].default if name in parameters else inspect.Parameter.empty
            if default is inspect.Parameter.empty:
                raise ValueError(f"{name} has no default, but the configuration {config} does not set it")
            config[name] = default
    return found


def _call_with_fitting(configs: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    parameters = inspect.signature(configs).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return configs(*args, **kwargs)
    room = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    names = {p.name for p in parameters}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return configs(*args[:room], **{k: v for k, v in kwargs.items() if takes_any or k in names})


def tunable_names(signature: inspect.Signature, configs: Sequence[Config]) -> frozenset[str]:
    """The parameters that the configurations set. Raises ValueError for a name that the function does not take."""
    names = frozenset(name for config in configs for name in config) - COMPILE_KEYS
    unknown = sorted(names - set(signature.parameters))
    if unknown:
        raise ValueError(f"configurations set {unknown}, which are no parameters of the function: {signature}")
    return names


def propose(
    configs: Sequence[Config], max_trials: int, batch: int, seed: int
) -> Iterator[tuple[list[Config], Callable[[Sequence[float | None]], None]]]:
    """Batches of configurations to try, each with a function that takes their costs (None = failed)."""
    if len(configs) <= max_trials:
        for start in range(0, len(configs), batch):
            yield list(configs[start : start + batch]), lambda costs: None
        return
    yield from _propose_by_tpe(configs, max_trials, batch, seed)


def _propose_by_tpe(
    configs: Sequence[Config], max_trials: int, batch: int, seed: int
) -> Iterator[tuple[list[Config], Callable[[Sequence[float | None]], None]]]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = dict.fromkeys(name for c in configs for name in c)
    axes = {name: list(dict.fromkeys(_key(c.get(name)) for c in configs)) for name in names}
    by_key = {tuple(_key(c.get(name)) for name in axes): c for c in configs}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True))
    pending = dict(by_key)
    tried = 0
    while pending and tried < max_trials:
        chosen: list[tuple[Any, Config]] = []
        # A draw may fall outside the list (the space need not be a full product) or on one already tried: such draws
        # are pruned, and after some of them the next untried configuration is taken as it stands.
        for _ in range(2 * batch):
            if len(chosen) == min(batch, max_trials - tried, len(pending) + len(chosen)):
                break
            trial = study.ask()
            key = tuple(trial.suggest_categorical(name, values) for name, values in axes.items())
            config = pending.pop(key, None)
            if config is None:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                continue
            chosen.append((trial, config))
        if not chosen:
            key = next(iter(pending))
            study.enqueue_trial(dict(zip(axes, key, strict=True)))
            trial = study.ask()
            for name, values in axes.items():
                trial.suggest_categorical(name, values)
            chosen.append((trial, pending.pop(key)))

        def tell(costs: Sequence[float | None], chosen: list[tuple[Any, Config]] = chosen) -> None:
            for (trial, _), cost in zip(chosen, costs, strict=True):
                if cost is None:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, cost)

        tried += len(chosen)
        yield [config for _, config in chosen], tell


def _key(value: Any) -> Any:
    """A categorical value that optuna takes: the plain ones as they are, the rest by their text."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
