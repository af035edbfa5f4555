# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.tools import plot_layout
from tilelang.tools.plot import formats_of

LAYOUT = T.Layout((4, 8), lambda i, j: i * 8 + j)


def test_formats_as_programs_name_them():
    assert formats_of("png") == ["png"] and formats_of("png, svg") == ["png", "svg"]
    assert formats_of("all") == ["pdf", "png", "svg"] and formats_of(["txt", "png", "txt"]) == ["txt", "png"]
    with pytest.raises(ValueError, match="pdf, png, svg, txt or all, got 'xyz'"):
        formats_of("png,xyz")


def test_files(tmp_path):
    paths = plot_layout(LAYOUT, save_directory=tmp_path / "deep", name="a", formats="png,txt", colormap="viridis")
    assert [p.name for p in paths] == ["a.png", "a.txt"] and all(p.stat().st_size for p in paths)
    assert paths[1].read_text().splitlines()[1].split() == [str(i) for i in range(8)]
    assert [p.name for p in plot_layout(LAYOUT, tmp_path, formats="txt")] == ["layout.txt"]


def test_what_is_no_layout():
    with pytest.raises(TypeError, match="draws a T.Layout or a T.Fragment, got int"):
        plot_layout(3)
