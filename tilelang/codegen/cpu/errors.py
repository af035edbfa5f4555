# SPDX-License-Identifier: Apache-2.0
"""What a program may say that the cpu target does not run, and tile ops whose operands do not fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilelang.support.diagnostics import SourceSpan
from tilelang.support.errors import UserError

__all__ = ["CpuUnsupported", "TileOpMisfit", "blame"]


class CpuUnsupported(UserError, NotImplementedError):
    """The program needs something that only a GPU has, or that the cpu target cannot tell the meaning of."""

    code = "TL6101"
    message = "{what} has no meaning on the cpu target"
    help = 'compile with target="cuda" (or "sim"), or write it without'


class TileOpMisfit(UserError, ValueError):
    """Operands of a tile op that do not fit each other."""

    code = "TL6102"
    message = "{op}: {why}"
    help = "give regions whose extents agree, and static tile sizes"


@contextmanager
def blame(stmt: Any) -> Iterator[None]:
    """Gives an error raised inside the place of `stmt`, unless it has one."""
    try:
        yield
    except UserError as e:
        if e.span is None:
            e.span = SourceSpan.of(stmt.span)
        raise
