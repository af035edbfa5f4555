# SPDX-License-Identifier: Apache-2.0
"""The `tilelang` command: compile, inspect, run and check kernels, and ask the compiler about itself.

Only this room prints. Nothing heavy is imported before a command needs it, so `tilelang --help` answers at once.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    from tilelang.cli.main import app

    app()
