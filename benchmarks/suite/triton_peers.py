# SPDX-License-Identifier: Apache-2.0
"""Peers written in Triton: what a reader would write with its documentation at hand, tuned by hand for an H200.

Every function takes tensors and gives a call. Importing this module needs Triton.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import triton
import triton.language as tl

__all__ = [
    "add",
    "add_into",
    "attention",
    "layer_norm",
    "matmul",
    "quantize",
    "rms_norm",
    "skinny",
    "softmax",
    "sparse_attention",
    "sum_many",
    "transpose",
]

Call = Callable[[], torch.Tensor]


# -- matrix products


@triton.jit
def _matmul(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, NK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, BLOCKS, flatten=True):
        panel = tile // (GROUP * tiles_n)
        first = panel * GROUP
        rows = min(tiles_m - first, GROUP)
        inside = tile % (GROUP * tiles_n)
        m, n = (first + inside % rows) * BM, (inside // rows) * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            a = a_desc.load([m, k * BK])
            if NK:
                acc = tl.dot(a, b_desc.load([n, k * BK]).T, acc)
            else:
                acc = tl.dot(a, b_desc.load([k * BK, n]), acc)
        c_desc.store([m, n], acc.to(c_desc.dtype))


def matmul(
    a: torch.Tensor, b: torch.Tensor, transposed: bool, block_k: int, out: torch.dtype, blocks: int | None = None
) -> Call:
    """A (M, K) times B, stored (N, K) if `transposed`, else (K, N): persistent blocks, copies by TMA."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    (m, k), n = a.shape, b.shape[0 if transposed else 1]
    bm, bn = 128, 256
    tiles = -(-m // bm) * -(-n // bn)
    count = blocks or min(torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 1, tiles)

    def call() -> torch.Tensor:
        c = torch.empty(m, n, dtype=out, device=a.device)
        descriptors = (
            TensorDescriptor.from_tensor(a, [bm, block_k]),
            TensorDescriptor.from_tensor(b, [bn, block_k] if transposed else [block_k, bn]),
            TensorDescriptor.from_tensor(c, [bm, bn]),
        )
        _matmul[(count,)](*descriptors, m, n, k, bm, bn, block_k, 8, transposed, count, num_warps=8, num_stages=3)
        return c

    return call


@triton.jit
def _skinny(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.arange(0, BM)
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        weights = tl.load(w + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        rows = tl.load(x + m[None, :] * K + k[:, None], mask=(m < M)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(weights, rows, acc)
    tl.store(y + m[None, :] * N + n[:, None], acc.to(y.dtype.element_ty), mask=(m < M)[None, :] & (n < N)[:, None])


def skinny(x: torch.Tensor, w: torch.Tensor) -> Call:
    """x (M, K) times w (N, K) transposed, for few rows: weights are the left operand."""
    (m, k), n = x.shape, w.shape[0]
    bm = max(16, triton.next_power_of_2(m))
    bn, bk, stages = 64, 128, 5 if bm <= 64 else 4

    def call() -> torch.Tensor:
        y = torch.empty(m, n, dtype=x.dtype, device=x.device)
        _skinny[(triton.cdiv(n, bn),)](x, w, y, m, n, k, bm, bn, bk, num_warps=4, num_stages=stages)
        return y

    return call


# -- attention


@triton.jit
def _attend(
    acc, total, top, q, k_ptr, v_ptr, start, end, first, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, D)
    rows = first + tl.arange(0, BM)
    for at in range(start, end, BN):
        cols = at + tl.arange(0, BN)
        k = tl.load(k_ptr + cols[None, :] * D + d[:, None])
        s = tl.dot(q, k) * scale
        if MASKED:
            s = tl.where(rows[:, None] >= cols[None, :], s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        factor = tl.math.exp2(top - new)
        total = total * factor + tl.sum(p, 1)
        acc = acc * factor[:, None]
        v = tl.load(v_ptr + cols[:, None] * D + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = new
    return acc, total, top


@triton.jit
def _attention(
    Q, K, V, O, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64) * length * D
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM
    rows, d = first + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(Q + head + rows[:, None] * D + d[None, :])
    acc = tl.zeros((BM, D), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    top = tl.full((BM,), -1e30, dtype=tl.float32)
    if CAUSAL:
        acc, total, top = _attend(
            acc, total, top, q, K + head, V + head, 0, first, first, length, scale, BM, BN, D, False
        )
        acc, total, top = _attend(
            acc, total, top, q, K + head, V + head, first, first + BM, first, length, scale, BM, BN, D, True
        )
    else:
        acc, total, top = _attend(
            acc, total, top, q, K + head, V + head, 0, length, first, length, scale, BM, BN, D, False
        )
    out = acc / total[:, None]
    tl.store(O + head + rows[:, None] * D + d[None, :], out.to(O.dtype.element_ty))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Call:
    """(batch, heads, length, head dimension), lengths that 128 divides. Raises ValueError for others."""
    batch, heads, length, dim = q.shape
    if length % 128 or k.shape != q.shape:
        raise ValueError("this kernel takes whole tiles of 128 rows and as many keys")
    bm, bn, warps, stages = (128, 64, 8, 2) if dim > 128 else (128, 128 if dim == 64 else 64, 8, 3)
    scale = 1.4426950408889634 / math.sqrt(dim)

    def call() -> torch.Tensor:
        out = torch.empty_like(q)
        grid = (length // bm, batch * heads)
        _attention[grid](q, k, v, out, length, scale, bm, bn, dim, causal, num_warps=warps, num_stages=stages)
        return out

    return call


@triton.jit
def _sparse_attention(
    Q, K, V, O, lists, counts, length, most, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64) * length * D
    row = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    rows, cols, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    q = tl.load(Q + head + rows[:, None] * D + d[None, :])
    acc = tl.zeros((BM, D), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    top = tl.full((BM,), -1e30, dtype=tl.float32)
    for n in range(tl.load(counts + row)):
        keys = tl.load(lists + row.to(tl.int64) * most + n) * BN + cols
        k = tl.load(K + head + keys[None, :] * D + d[:, None])
        s = tl.dot(q, k) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        factor = tl.math.exp2(top - new)
        total = total * factor + tl.sum(p, 1)
        acc = acc * factor[:, None]
        v = tl.load(V + head + keys[:, None] * D + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = new
    out = tl.where(total[:, None] > 0, acc / total[:, None], 0.0)
    tl.store(O + head + rows[:, None] * D + d[None, :], out.to(O.dtype.element_ty))


def sparse_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lists: torch.Tensor, counts: torch.Tensor
) -> Call:
    """Tiles of 64 queries that see listed tiles of 64 keys; lists (batch, heads, tiles, most), counts their lengths.
    Raises ValueError for lengths that 64 does not divide."""
    batch, heads, length, dim = q.shape
    if length % 64 or k.shape != q.shape:
        raise ValueError("this kernel takes whole tiles of 64 rows and as many keys")
    scale = 1.4426950408889634 / math.sqrt(dim)

    def call() -> torch.Tensor:
        out = torch.empty_like(q)
        grid = (length // 64, batch * heads)
        _sparse_attention[grid](
            q, k, v, out, lists, counts, length, lists.shape[-1], scale, 64, 64, dim, num_warps=4, num_stages=3
        )
        return out

    return call


# -- rows


@triton.jit
def _rms_norm(x, w, y, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * N
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)
    weights = tl.load(w + at, mask=at < N, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / N + eps)
    tl.store(y + row + at, (values * scale * weights).to(y.dtype.element_ty), mask=at < N)


@triton.jit
def _layer_norm(x, w, b, y, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * N
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at, mask=at < N, other=0.0).to(tl.float32)
    centred = tl.where(at < N, values - tl.sum(values, 0) / N, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / N + eps)
    weights = tl.load(w + at, mask=at < N, other=0.0).to(tl.float32)
    biases = tl.load(b + at, mask=at < N, other=0.0).to(tl.float32)
    tl.store(y + row + at, (centred * scale * weights + biases).to(y.dtype.element_ty), mask=at < N)


@triton.jit
def _softmax(x, y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * N
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row + at, mask=at < N, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + at, (powers / tl.sum(powers, 0)).to(y.dtype.element_ty), mask=at < N)


def _warps(columns: int) -> int:
    return min(max(columns // 512, 4), 16)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> Call:
    m, n = x.shape

    def call() -> torch.Tensor:
        y = torch.empty_like(x)
        _rms_norm[(m,)](x, weight, y, n, 1e-5, triton.next_power_of_2(n), num_warps=_warps(n))
        return y

    return call


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Call:
    m, n = x.shape

    def call() -> torch.Tensor:
        y = torch.empty_like(x)
        _layer_norm[(m,)](x, weight, bias, y, n, 1e-5, triton.next_power_of_2(n), num_warps=_warps(n))
        return y

    return call


def softmax(x: torch.Tensor) -> Call:
    m, n = x.shape

    def call() -> torch.Tensor:
        y = torch.empty_like(x)
        _softmax[(m,)](x, y, n, triton.next_power_of_2(n), num_warps=_warps(n))
        return y

    return call


@triton.jit
def _quantize(x, y, scales, N, smallest, largest, GROUPS: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1) * GROUPS
    group, inside = part + tl.arange(0, GROUPS), tl.arange(0, 128)
    at = row * N + group[:, None] * 128 + inside[None, :]
    known = (group * 128 < N)[:, None] & (inside < 128)[None, :]
    values = tl.load(x + at, mask=known, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 1), smallest) / largest
    tl.store(scales + row * (N // 128) + group, scale, mask=group * 128 < N)
    quotients = tl.minimum(tl.maximum(values / scale[:, None], -largest), largest)
    tl.store(y + at, quotients.to(y.dtype.element_ty), mask=known)


def quantize(x: torch.Tensor, smallest: float, largest: float) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """float8 e4m3 with a scale for every 128 elements of a row."""
    m, n = x.shape

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.empty(m, n, dtype=torch.float8_e4m3fn, device=x.device)
        scales = torch.empty(m, n // 128, dtype=torch.float32, device=x.device)
        _quantize[(m, triton.cdiv(n, 128 * 16))](x, y, scales, n, smallest, largest, 16, num_warps=4)
        return y, scales

    return call


# -- elementwise


@triton.jit
def _add(a, b, c, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left, right = tl.load(a + at, mask=at < count), tl.load(b + at, mask=at < count)
    tl.store(c + at, left + right, mask=at < count)


def add(a: torch.Tensor, b: torch.Tensor) -> Call:
    count = a.numel()

    def call() -> torch.Tensor:
        c = torch.empty_like(a)
        _add[(triton.cdiv(count, 4096),)](a, b, c, count, 4096, num_warps=8)
        return c

    return call


def add_into(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Call:
    count = a.numel()
    grid = (triton.cdiv(count, 1024),)

    def call() -> torch.Tensor:
        _add[grid](a, b, out, count, 1024)
        return out

    return call


@triton.jit
def _sum_many(
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15, x16, x17, x18, y, count, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = at < count
    first = tl.load(x0 + at, known) + tl.load(x1 + at, known) + tl.load(x2 + at, known) + tl.load(x3 + at, known)
    first += tl.load(x4 + at, known) + tl.load(x5 + at, known) + tl.load(x6 + at, known) + tl.load(x7 + at, known)
    first += tl.load(x8 + at, known) + tl.load(x9 + at, known) + tl.load(x10 + at, known) + tl.load(x11 + at, known)
    first += tl.load(x12 + at, known) + tl.load(x13 + at, known) + tl.load(x14 + at, known) + tl.load(x15 + at, known)
    first += tl.load(x16 + at, known) + tl.load(x17 + at, known) + tl.load(x18 + at, known)
    tl.store(y + at, first, mask=known)


def sum_many(inputs: list[torch.Tensor], out: torch.Tensor) -> Call:
    """The sum of 19 tensors."""
    count = out.numel()
    grid = (triton.cdiv(count, 1024),)

    def call() -> torch.Tensor:
        _sum_many[grid](*inputs, out, count, 1024)
        return out

    return call


@triton.jit
def _transpose(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    known = (m < M)[:, None] & (n < N)[None, :]
    values = tl.load(x + m.to(tl.int64)[:, None] * N + n[None, :], mask=known)
    tl.store(y + n.to(tl.int64)[:, None] * M + m[None, :], values.T, mask=known.T)


def transpose(x: torch.Tensor) -> Call:
    m, n = x.shape

    def call() -> torch.Tensor:
        y = torch.empty(n, m, dtype=x.dtype, device=x.device)
        _transpose[(triton.cdiv(m, 64), triton.cdiv(n, 64))](x, y, m, n, 64, 64, num_warps=4)
        return y

    return call
