# SPDX-License-Identifier: Apache-2.0
"""Stored searches: what they depend on, and that damage is survived."""

from __future__ import annotations

from pathlib import Path

from tilelang.autotuner import store


def _factory(scale: object) -> object:
    def function(block: int = 1) -> object:
        return scale, block

    return function


def test_the_key_depends_on_all_that_matters() -> None:
    key = store.search_key(_factory(1), {"m": 1}, [{"block": 1}], {"device": "x"})
    assert key == store.search_key(_factory(1), {"m": 1}, [{"block": 1}], {"device": "x"})
    others = [
        store.search_key(_factory(2), {"m": 1}, [{"block": 1}], {"device": "x"}),
        store.search_key(_factory(1), {"m": 2}, [{"block": 1}], {"device": "x"}),
        store.search_key(_factory(1), {"m": 1}, [{"block": 2}], {"device": "x"}),
        store.search_key(_factory(1), {"m": 1}, [{"block": 1}], {"device": "y"}),
    ]
    assert len({key, *others}) == 5


def test_values_without_a_stable_text_have_no_key() -> None:
    assert store.search_key(_factory(object()), {}, [{"block": 1}], {}) is None


def test_round_trip_and_damage(tmp_path: Path) -> None:
    assert store.load(tmp_path, "k") is None
    store.store(tmp_path, "k", {"latency": 1.5})
    assert store.load(tmp_path, "k") == {"latency": 1.5}
    (tmp_path / "k.json").write_text("{")
    assert store.load(tmp_path, "k") is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store.store(tmp_path / "file" / "autotuner", "key", {"latency": 1.0})
    assert store.load(tmp_path / "file" / "autotuner", "key") is None
