# SPDX-License-Identifier: Apache-2.0
"""The passes, `pipeline` from top to bottom; and names that programs import from here, which stand elsewhere."""

from __future__ import annotations

from typing import TypeVar

from tilelang.support.import_paths import lazy_names

__all__ = ["simplify_prim_func"]

F = TypeVar("F")

__getattr__ = lazy_names(
    __name__,
    {"PassConfigKey": "tilelang.jit.pass_config"},
    {
        "Simplify": "integers are always simplified",
        "get_pass_context": "pass_configs of tilelang.jit and tilelang.compile sets options",
    },
)


def simplify_prim_func(func: F) -> F:
    """The function itself: integers of programs are always simplified."""
    return func
