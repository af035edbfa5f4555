# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tilelang.support.collector import collector_paused


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    before = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if before else gc.disable)()


def test_the_collector_comes_back_also_after_an_error() -> None:
    with pytest.raises(KeyError), collector_paused(), collector_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_the_last_thread_switches_it_on() -> None:
    step = Barrier(2, timeout=10)

    def first() -> None:
        with collector_paused():
            step.wait()  # both are inside
        step.wait()

    def last() -> bool:
        with collector_paused():
            step.wait()
            step.wait()  # the first has left
            return gc.isenabled()

    with ThreadPoolExecutor(2) as pool:
        jobs = pool.submit(first), pool.submit(last)
        assert [job.result() for job in jobs] == [None, False]
    assert gc.isenabled()
