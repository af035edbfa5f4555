# SPDX-License-Identifier: Apache-2.0
"""The `tilelang` logger: one stream handler to stderr, the level from TILELANG_LOG_LEVEL or `set_log_level`."""

from __future__ import annotations

import logging

from tilelang.support.env import env

__all__ = ["logger", "set_log_level"]


def _make_logger() -> logging.Logger:
    made = logging.getLogger("tilelang")
    if not made.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s tilelang %(levelname)s %(message)s", "%H:%M:%S"))
        made.addHandler(handler)
        made.propagate = False
        made.setLevel(env.log_level.get().upper())
    return made


logger = _make_logger()


def set_log_level(level: int | str) -> None:
    """Sets the level of the `tilelang` logger: a name such as "INFO", or a number of `logging`."""
    logger.setLevel(level.upper() if isinstance(level, str) else level)
