# SPDX-License-Identifier: Apache-2.0
"""Which configurations are tried, and what a space may not be."""

from __future__ import annotations

import inspect
import itertools

import pytest

from tilelang.autotuner.space import propose, resolve_configs, tunable_names

SPACE = [{"block": b, "stages": s} for b, s in itertools.product((32, 64, 96, 128, 160, 192), (0, 1, 2, 3, 4))]


def _search(max_trials: int) -> list[dict[str, int]]:
    """All configurations tried when the cost is the distance from (128, 3)."""
    tried = []
    for batch, tell in propose(SPACE, max_trials, batch=4, seed=0):
        tried += batch
        tell([abs(c["block"] - 128) + 10 * abs(c["stages"] - 3) + 1.0 for c in batch])
    return tried


def test_a_small_space_is_tried_whole() -> None:
    assert _search(100) == SPACE


def test_a_large_space_is_sampled_without_repetition() -> None:
    tried = _search(15)
    assert len(tried) == 15
    assert len({tuple(c.items()) for c in tried}) == 15
    assert {"block": 128, "stages": 3} in tried  # the search moves towards the best


def test_failed_configurations_do_not_end_the_search() -> None:
    tried = 0
    for batch, tell in propose(SPACE, 12, batch=4, seed=1):
        tried += len(batch)
        tell([None] * len(batch))
    assert tried == 12


def test_a_space_that_is_no_full_product() -> None:
    diagonal = [{"x": i, "y": i} for i in range(16)]
    seen = []
    for batch, tell in propose(diagonal, 8, batch=4, seed=0):
        seen += [c["x"] for c in batch]
        tell([1.0] * len(batch))
    assert len(seen) == len(set(seen)) == 8


def test_configurations_may_depend_on_the_call() -> None:
    assert resolve_configs(lambda m: [{"block": m}], (7, 8), {}) == [{"block": 7}]
    assert resolve_configs(lambda *, n: [{"block": n}], (), {"n": 3, "m": 4}) == [{"block": 3}]


@pytest.mark.parametrize("configs, message", [([], "at least one"), ([{"a": 1}, {"b": 1}], "has no default")])
def test_bad_spaces(configs: list[dict[str, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_configs(configs, (), {})


def test_a_parameter_that_the_function_lacks() -> None:
    def function(block: int = 1) -> None: ...

    with pytest.raises(ValueError, match="stages"):
        tunable_names(inspect.signature(function), SPACE)
