# SPDX-License-Identifier: Apache-2.0
"""Ready-made attention: `TileFlashAttention`, a torch module, and `flash_attention`, the function under it.

Both run a tile program of this package: on a Hopper GPU as a warp-specialised kernel, without a GPU on the CPU.
"""

from __future__ import annotations

from tilelang.flash_attention.kernel import attention_forward
from tilelang.flash_attention.module import TileFlashAttention, flash_attention

__all__ = ["TileFlashAttention", "attention_forward", "flash_attention"]
