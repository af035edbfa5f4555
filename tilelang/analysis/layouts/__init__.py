# SPDX-License-Identifier: Apache-2.0
"""Layout inference: what every tile op asks of the layouts of its operands, and the solver that answers.

`extract` reads a kernel into the op model of `program`; `rules` turns ops into the constraints of `edges`, priced by
`costs`; `solve` finds the layouts. `transform/infer_layouts.py` writes them into the program.
"""

from __future__ import annotations

from tilelang.analysis.layouts.extract import extract
from tilelang.analysis.layouts.solve import Solution, solve

__all__ = ["Solution", "extract", "solve"]
