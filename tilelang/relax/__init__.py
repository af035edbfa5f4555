# SPDX-License-Identifier: Apache-2.0
"""Tile kernels inside TVM Relax programs.

`tile_function` makes of a tile program the PrimFunc that `relax.call_tir` calls; `compile_module` builds a Relax
module that holds such functions, for llvm or cuda.
"""

from __future__ import annotations

from tilelang.relax.build import compile_module
from tilelang.relax.function import tile_function

__all__ = ["compile_module", "tile_function"]
