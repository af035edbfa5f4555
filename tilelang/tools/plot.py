# SPDX-License-Identifier: Apache-2.0
"""Pictures of layouts: where each element of a tile lives.

A fragment is drawn as a table of `thread:register`, a shared tile by its addresses. `layout_table` is the same as
text for a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilelang.support.logs import logger

__all__ = ["formats_of", "layout_table", "plot_layout"]

_PICTURES = ("pdf", "png", "svg")

_MAX_CELLS = 32  # rows and columns of a text table; the rest follows the same pattern


def _cells(layout: Any) -> tuple[np.ndarray, np.ndarray]:
    """(text, group number) of every element of a layout as 2-D arrays: higher dimensions are flattened into rows."""
    places = {axis: values[..., 0] for axis, values in layout.arrays.items()}
    first = next(iter(places.values()))
    shape = (1, first.shape[0]) if first.ndim == 1 else (int(np.prod(first.shape[:-1])), first.shape[-1])
    if "thread" in places:
        thread, reg = places["thread"].reshape(shape), places["reg"].reshape(shape)
        text = np.char.add(np.char.add(thread.astype(str), ":"), reg.astype(str))
        return text, thread
    addr = places["addr"].reshape(shape)
    return addr.astype(str), addr % shape[1]


def layout_table(layout: Any) -> str:
    """The first rows and columns as text: `thread:register`, or the address in elements."""
    text, _ = _cells(layout)
    part = text[:_MAX_CELLS, :_MAX_CELLS]
    width = max(len(cell) for cell in part.flat)
    lines = [" ".join(f"{cell:>{width}s}" for cell in row) for row in part]
    if part.shape != text.shape:
        lines.append(f"(the first {part.shape[0]} x {part.shape[1]} of {text.shape[0]} x {text.shape[1]})")
    return "\n".join(lines)


def formats_of(formats: str | Sequence[str]) -> list[str]:
    """The formats that a program names: "png", "png,svg", ["png", "txt"], "all" (of pictures). Raises `ValueError` for
    others."""
    named = formats.split(",") if isinstance(formats, str) else formats
    found = list(dict.fromkeys(part.strip() for part in named if part.strip()))
    if found == ["all"]:
        return list(_PICTURES)
    unknown = next((f for f in found if f not in (*_PICTURES, "txt")), None)
    if unknown is not None:
        raise ValueError(f"layouts are drawn as {', '.join(_PICTURES)}, txt or all, got {unknown!r}")
    return found


def plot_layout(
    layout: Any,
    save_directory: str | Path = ".",
    name: str = "layout",
    formats: str | Sequence[str] = "png",
    colormap: str = "tab20",
    verbose: bool = False,
) -> list[Path]:
    """Draw a layout, one file a format (`formats_of`); returns the paths. `colormap` is one of matplotlib, `verbose`
    logs the paths. Pictures need matplotlib (`pip install tilelang[inspect]`). Raises `TypeError` for what is no
    layout.
    """
    if not hasattr(layout, "arrays"):
        raise TypeError(f"plot_layout draws a T.Layout or a T.Fragment, got {type(layout).__name__}")
    folder = Path(save_directory)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = formats_of(formats)
    paths = [folder / f"{name}.{suffix}" for suffix in wanted]
    if "txt" in wanted:
        (folder / f"{name}.txt").write_text(f"{layout}\n{layout_table(layout)}\n", encoding="utf-8")
    if pictures := [path for path in paths if path.suffix != ".txt"]:
        _draw(layout, name, pictures, colormap)
    if verbose:
        for path in paths:
            logger.warning("layout of %s: %s", name, path)
    return paths


def _draw(layout: Any, name: str, paths: Sequence[Path], colormap: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    text, group = _cells(layout)
    rows, columns = text.shape
    figure, axes = plt.subplots(figsize=(max(4.0, 0.35 * columns), max(2.0, 0.22 * rows)))
    axes.imshow(group % 32, cmap=colormap, aspect="auto", alpha=0.6)
    if rows * columns <= 4096:  # more text than that is unreadable, and slow to draw
        for i in range(rows):
            for j in range(columns):
                axes.text(j, i, text[i, j], ha="center", va="center", fontsize=5)
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    axes.set_title(f"{name}: {'thread:register' if 'thread' in layout.axes else 'address in elements'}")
    for path in paths:
        figure.savefig(path, bbox_inches="tight", dpi=150)
    plt.close(figure)
