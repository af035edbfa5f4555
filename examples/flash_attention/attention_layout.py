# SPDX-License-Identifier: Apache-2.0
"""Where the rows of a head lie: the two layouts of attention tensors, for kernels and for torch.

"bshd" is (batch, sequence, heads, head dimension), "bhsd" (batch, heads, sequence, head dimension). A kernel calls
`rows` while it is traced, so it is written once for both.
"""

from __future__ import annotations

from typing import Any

import torch


def tensor_shape(layout: str, batch: int, seq: int, heads: int, dim: int) -> tuple[int, int, int, int]:
    return (batch, seq, heads, dim) if layout == "bshd" else (batch, heads, seq, dim)


def rows(layout: str, tensor: Any, b: Any, head: Any, start: Any, count: int) -> Any:
    """The tile of `count` rows from `start` on of one head."""
    if layout == "bshd":
        return tensor[b, start : start + count, head, :]
    return tensor[b, head, start : start + count, :]


def element(layout: str, tensor: Any, b: Any, head: Any, row: Any, column: Any) -> Any:
    """One element of a row."""
    return tensor[b, row, head, column] if layout == "bshd" else tensor[b, head, row, column]


def as_bshd(layout: str, tensor: torch.Tensor) -> torch.Tensor:
    """The torch tensor with its dimensions in the order (batch, sequence, heads, head dimension)."""
    return tensor if layout == "bshd" else tensor.transpose(1, 2)
