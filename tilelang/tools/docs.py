# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/ that are made from the sources: `python -m tilelang.tools.docs docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from tilelang.tools.device_ops import device_ops_page
from tilelang.tools.errors import errors_page
from tilelang.tools.examples import index_page
from tilelang.tools.names import names_page
from tilelang.tools.passes import passes_page
from tilelang.tools.tour import tour_page

__all__ = ["write_pages"]

_PAGES = {
    "names.md": names_page,
    "errors.md": errors_page,
    "passes.md": passes_page,
    "device_ops.md": device_ops_page,
    "tour.md": tour_page,
    "language/index.md": index_page,
}


def write_pages(folder: Path) -> list[Path]:
    """Write every generated page; returns their paths."""
    for name, make in _PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(make())
    return [folder / name for name in _PAGES]


if __name__ == "__main__":
    for path in write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        sys.stdout.write(f"{path}\n")
