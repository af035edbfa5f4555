# SPDX-License-Identifier: Apache-2.0
"""Names that other languages for tiles and torch have, which say something else here: what to write instead."""

from __future__ import annotations

__all__ = ["ELSEWHERE"]

_GRID = "`with T.Kernel(gx, gy, threads=128) as (bx, by):` names the indices of the block"
_EMPTY = "T.alloc_fragment(shape, dtype) or T.alloc_shared makes a tile"
_BUILD = "an index is a loop: `for i in T.Parallel(n):`"
_READ = "A[i] reads an element, T.copy(A[i0, j0], tile) a tile"
_WRITE = "A[i] = x stores an element, T.copy(tile, A[i0, j0]) a tile"
_SHAPE = "index it in a loop (`for i, j in T.Parallel(m, n): B[i, j] = A[j]`)"
_SELECT = "T.if_then_else(condition, a, b) in a T.Parallel loop, or Python's `a if condition else b`"

ELSEWHERE = {
    "arange": _BUILD,
    "argmax": "T.reduce_max(tile, out, dim=1) finds the greatest; compare the elements with it for their place",
    "argmin": "T.reduce_min(tile, out, dim=1) finds the least; compare the elements with it for their place",
    "broadcast_to": _SHAPE,
    "cdiv": "T.ceildiv(a, b) divides and rounds up",
    "constexpr": "parameters of a @tilelang.jit function that are no tensors are known while tracing",
    "debug_barrier": "T.sync_threads() waits for the threads of the block",
    "device_print": "T.print(value) prints where the kernel runs",
    "dot": "T.gemm(A, B, C) adds the product of two tiles to C",
    "expand_dims": _SHAPE,
    "full": f"{_EMPTY}, T.fill(tile, value) sets its elements",
    "load": _READ,
    "make_block_ptr": _READ,
    "matmul": "T.gemm(A, B, C) adds the product of two tiles to C",
    "num_programs": "the extents that T.Kernel got are the numbers of blocks",
    "ones": f"{_EMPTY}, T.fill(tile, 1) sets its elements",
    "program_id": _GRID,
    "rand": "T.rng_init(seed) and T.rng_rand_float() make random numbers",
    "softmax": "T.reduce_max, T.exp in a T.Parallel loop and T.reduce_sum are its parts",
    "static_range": "T.unroll(n) is a loop that is unrolled; a Python list is unrolled while tracing",
    "store": _WRITE,
    "sum": "T.reduce_sum(tile, out, dim=1) sums a tile; sum() of Python sums a list of values",
    "tensor": "T.Tensor((m, n), dtype) annotates a parameter",
    "trans": "T.gemm(A, B, C, transpose_B=True) takes a transposed operand; T.transpose(src, dst) moves a tile",
    "where": _SELECT,
    "zeros": f"{_EMPTY}, T.clear(tile) sets its elements to 0",
    "zeros_like": f"{_EMPTY}, T.clear(tile) sets its elements to 0",
}
