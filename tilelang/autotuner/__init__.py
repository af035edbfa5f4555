# SPDX-License-Identifier: Apache-2.0
"""Search over the configurations of a kernel: compile them side by side, check them, time them, keep the best.

`tilelang.autotune` above `tilelang.jit` is the usual way in; `AutoTuner` is the same search as an object. On a machine
without a GPU nothing can be timed: configurations are ranked by a static estimate, and the result says so.
"""

from __future__ import annotations

from tilelang.autotuner.decorator import AutoTuner, TunedJIT, autotune
from tilelang.autotuner.gemm_tiles import GemmTile, gemm_tile, packed_gemm_tile, packed_split_k, split_k_of
from tilelang.autotuner.inputs import get_autotune_inputs, set_autotune_inputs
from tilelang.autotuner.result import AutotuneResult, Trial

__all__ = [
    "AutoTuner",
    "AutotuneResult",
    "GemmTile",
    "Trial",
    "TunedJIT",
    "autotune",
    "gemm_tile",
    "get_autotune_inputs",
    "packed_gemm_tile",
    "packed_split_k",
    "set_autotune_inputs",
    "split_k_of",
]
