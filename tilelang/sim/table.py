# SPDX-License-Identifier: Apache-2.0
"""The numpy column of the device-op table: row name -> meaning.

A meaning is `run(G, m, site, **operands, **statics)` for gang `G` under mask `m`. Values are numbers or arrays over
threads,
`smem` operands shared addresses, `gmem` and `regs` operands `Pointer`s, `tmap` operands `TensorMap`s. One that can
suspend is a generator that yields `Wait` (`blocks`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["BLOCKING", "MEANINGS", "Meaning", "meaning"]


@dataclass(frozen=True)
class Meaning:
    run: Callable[..., Any]
    blocks: bool


MEANINGS: dict[str, Meaning] = {}
BLOCKING: set[str] = set()


def meaning(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as the meaning of rows."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        blocks = inspect.isgeneratorfunction(f)
        for name in names:
            MEANINGS[name] = Meaning(f, blocks)
            if blocks:
                BLOCKING.add(name)
        return f

    return register
