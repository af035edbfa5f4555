# SPDX-License-Identifier: Apache-2.0
"""2:4 sparse matrices as T.gemm_sp takes them."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["compress", "randint_semi_sparse", "randn_semi_sparse"]

_GROUP, _KEPT, _CODE_BITS = 4, 2, 4


def compress(
    A: torch.Tensor, transposed: bool = False, meta_dtype: torch.dtype = torch.int16, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kept elements (M, K / 2) of a matrix (M, K), and their places (M, K / bits of `meta_dtype`).

    Of every four elements of a row at most two are not zero (ValueError); `transposed` matrices have them along columns
    and come out transposed. `options` such as an architecture change nothing: there is one order of places.
    """
    matrix = A.t() if transposed else A
    bits = torch.iinfo(meta_dtype).bits
    if matrix.shape[1] % bits:
        raise ValueError(f"rows of {matrix.shape[1]} elements are no multiple of {bits}, what one word describes")
    groups = matrix.reshape(matrix.shape[0], -1, _GROUP)
    used = groups != 0 if not groups.is_floating_point() else groups.float() != 0
    if int(used.sum(-1).max()) > _KEPT:
        raise ValueError("some four elements in a row have more than two that are not zero")
    # Places of elements that are used come first, in their order; a stable sort keeps it among the others.
    places = torch.argsort(~used, dim=-1, stable=True)[..., :_KEPT].sort(-1).values
    raw = groups.contiguous().view(torch.uint8).reshape(*groups.shape, -1)
    index = places[..., None].expand(*places.shape, raw.shape[-1])
    kept = raw.gather(-2, index).contiguous().view(matrix.dtype).reshape(matrix.shape[0], -1)
    codes = (places[..., 0] | places[..., 1] << 2).reshape(matrix.shape[0], -1, bits // _CODE_BITS)
    shifts = torch.arange(0, bits, _CODE_BITS, device=A.device)
    words = (codes << shifts).sum(-1)
    words = torch.where(words >= 1 << (bits - 1), words - (1 << bits), words) if meta_dtype.is_signed else words
    words = words.to(meta_dtype)
    return (kept.t().contiguous(), words.t().contiguous()) if transposed else (kept, words)


def randn_semi_sparse(
    M: int, K: int, dtype: torch.dtype = torch.float16, device: Any = "cuda", transposed: bool = False
) -> torch.Tensor:
    """A random matrix (M, K), transposed if asked for, of which every four elements along K have two zeros."""
    return _thinned(torch.randn(M, K // _GROUP, _GROUP, device=device), dtype, transposed)


def randint_semi_sparse(
    M: int,
    K: int,
    low: int,
    high: int,
    dtype: torch.dtype = torch.int8,
    device: Any = "cuda",
    transposed: bool = False,
) -> torch.Tensor:
    """The same of integers from `low` to `high`, which is not among them."""
    return _thinned(torch.randint(low, high, (M, K // _GROUP, _GROUP), device=device), dtype, transposed)


def _thinned(values: torch.Tensor, dtype: torch.dtype, transposed: bool) -> torch.Tensor:
    """The matrix of groups of four, two of each set to zero."""
    drop = torch.rand(values.shape, device=values.device).argsort(-1) < _KEPT
    dense = values.masked_fill(drop, 0).flatten(1).to(dtype)
    return dense.t().contiguous() if transposed else dense
