# SPDX-License-Identifier: Apache-2.0
"""Forms that client kernels use, in small programs: each must trace, and mean what it says."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pytest
import torch
from user_programs import body

import tilelang.language as T


def test_variable_length_attention_indices():
    def make(is_varlen, block=64, dim=32):
        total, batch = T.dynamic("total, batch")

        @T.prim_func
        def main(
            Q: T.Tensor([total, dim], T.bfloat16),
            cu_seqlens: T.Tensor([batch + 1], T.int32),
            *,
            O: T.Tensor([total, dim], T.bfloat16),
            max_len: T.int32,
        ):
            with T.Kernel(T.ceildiv(max_len, block), batch, threads=128) as (bx, bz):
                start = cu_seqlens[bz] if is_varlen else 0
                end = cu_seqlens[bz + 1] if is_varlen else total
                length = end - start
                S = T.alloc_shared([block, dim], T.bfloat16)
                if bx * block < length:
                    T.copy(Q[start + bx * block : start + (bx + 1) * block, :], S)
                    for i, j in T.Parallel(block, dim):
                        if bx * block + i < length:
                            O[start + bx * block + i, j] = S[i, j]

        return main

    text = body(make(True))
    assert "start: T.let[T.int32] = cu_seqlens[bz]" in text
    assert "Q[start + bx * 64:start + bx * 64 + 64, 0:32]" in text
    text = body(make(False))
    assert "length" not in text.split("if bx * 64 <")[0] and "if bx * 64 < total:" in text


def test_dequantised_weights():
    def make(bits=4, dtype="float16", packed="int8", block=64):
        per_byte = 8 // bits

        def unpack(value, position):
            return ((value >> (position * bits)) & ((1 << bits) - 1)).astype("int8")

        @T.macro
        def dequantise(packed_shared, out_shared):
            raw = T.alloc_local((4,), packed)
            out = T.alloc_local((4 * per_byte,), dtype)
            for i in T.serial(block * block // (128 * 4 * per_byte)):
                tx = T.get_thread_binding()
                for v in T.vectorized(4):
                    index = i * 128 * 4 + tx * 4 + v
                    raw[v] = packed_shared[index // (block // per_byte), index % (block // per_byte)]
                for v in T.serial(4 * per_byte):
                    out[v] = T.cast(unpack(raw[v // per_byte], v % per_byte), dtype)
                for v in T.vectorized(4 * per_byte):
                    index = i * 128 * 4 * per_byte + tx * 4 * per_byte + v
                    out_shared[index // block, index % block] = out[v]

        @T.prim_func
        def main(B: T.Tensor((block, block // per_byte), packed), C: T.Tensor((block, block), dtype)):
            with T.Kernel(1, threads=128):
                B_shared = T.alloc_shared((block, block // per_byte), packed)
                C_shared = T.alloc_shared((block, block), dtype)
                T.copy(B, B_shared)
                dequantise(B_shared, C_shared)
                T.copy(C_shared, C)

        return main

    text = body(make())
    assert "T.vectorized(4)" in text and ">> v_1 % 2 * 4 & 15" in text.replace("(", "").replace(")", "")


def test_block_sparse_loop_with_a_mask():
    @T.prim_func
    def main(A: T.Tensor((8, 64, 64), "float16"), Mask: T.Tensor((8,), "bool"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            found = T.alloc_var("bool", False)
            last = T.alloc_var(T.int32, init=-1)
            T.clear(acc)
            for k in T.Pipelined(8, num_stages=2):
                if Mask[k]:
                    T.copy(A[k, :, :], S)
                    T.gemm(S, S, acc, transpose_B=True)
                    found = True
                    last = k
            if found and last >= 0:
                T.copy(acc, O)

    text = body(main)
    assert "if Mask[k]:" in text and "found[0] = T.bool(True)" in text and "last[0] = k" in text
    assert "if found[0] and last[0] >= 0:" in text


@dataclass(frozen=True)
class Config:
    rows: int
    round_up: bool = False


def test_dataclass_configurations_and_dummy_statements():
    config = Config(4, True)
    dtype = torch.float16

    @T.prim_func
    def main(X: T.Tensor((16, 32), dtype), Y: T.Tensor((16, 32), dtype)):
        _ = dtype
        with T.Kernel(16 // config.rows, threads=128) as (bx,):
            x = T.alloc_fragment((config.rows, 32), T.float32)
            top = T.alloc_fragment(config.rows, "float32")
            T.copy(X[bx * config.rows, 0], x)
            T.reduce_absmax(x, top, dim=1)
            for i, j in T.Parallel(config.rows, 32):
                scale = T.max(top[i], 1e-4) / 448.0
                if config.round_up:
                    scale = T.exp2(T.ceil(T.log2(scale)))
                x[i, j] = T.clamp(x[i, j] / scale, -448.0, 448.0)
            T.copy(x, Y[bx * config.rows, 0])

    text = body(main)
    assert "scale_1: T.let[T.float32] = T.exp2(T.ceil(T.log2(scale)))" in text
    assert "x[i, j] / scale_1" in text


def test_layer_norm_over_rows():
    @T.prim_func
    def main(
        X: T.Tensor((32, 256), "float32"),
        W: T.Tensor(256, "float32"),
        Y: T.Tensor((32, 256), "float32"),
        eps: T.float32,
    ):
        with T.Kernel(32, threads=128) as row:
            x = T.alloc_fragment((1, 256), "float32")
            square = T.alloc_fragment((1, 256), "float32")
            total, total2 = T.alloc_fragment((1,), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(X[row, :], x)
            for i, j in T.Parallel(1, 256):
                square[i, j] = x[i, j] ** 2
            T.reduce_sum(x, total)
            T.reduce_sum(square, total2, dim=1)
            mean = total[0] / 256
            variance = total2[0] / 256 - mean * mean
            for j in T.Parallel(256):
                Y[row, j] = (x[0, j] - mean) * T.rsqrt(variance + eps) * W[j]

    text = body(main)
    assert "mean: T.let[T.float32] = total[0] / T.float32(256.0)" in text or "mean:" in text


def test_split_kernels_and_helpers():
    def index_of(i, n):
        """A plain helper: runs while tracing, on whatever it is given."""
        return i % n if isinstance(i, int) else T.floormod(i, n)

    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), P: T.Tensor((4, 2, 64), "float32"), O: T.Tensor((4, 64), "float32")):
        with T.Kernel(4, 2, threads=64) as (b, s):
            part = T.alloc_fragment((64,), "float32")
            T.copy(A[b, :], part)
            T.copy(part, P[b, s, :])
        with T.Kernel(4, threads=64) as b:
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for s in range(2):
                for j in T.Parallel(64):
                    total[j] += P[index_of(b, 4), index_of(s, 2), j]
            T.copy(total, O[b, :])

    text = main.script(show_meta=False)
    assert text.count('"blockIdx.x", 4') == 2
    assert "P[b_1 % 4, s_1 % 2, j]" in text


def test_strided_rows_and_scalar_types():
    @T.prim_func
    def main(A: T.StridedTensor((32, 64), (T.dynamic("stride"), 1), "float16"), alpha: float, n: T.int64, flag: T.bool):
        with T.Kernel(32, threads=64) as b:
            for j in T.Parallel(64):
                if flag and b < n:
                    A[b, j] = A[b, j] * alpha

    text = main.script(show_meta=False)
    assert "alpha: T.float32" in text and "n: T.int64" in text and "flag: T.bool" in text and "stride" in text


def test_loops_with_steps_and_early_exit():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            count = T.alloc_var("int32", 0)
            for i in T.serial(0, 64, 4):
                if A[i] < 0:
                    break
                count += A[i]
            for i in T.unroll(4):
                count = count + i if i < n else count
            j = T.alloc_var("int32", n)
            while j > 0 and count < 100:
                j = j // 2
                count += 1
            A[0] = count

    text = body(main)
    assert "break" in text and "count[0] = T.if_then_else(i_" in text
    assert "while j[0] > 0 and count[0] < 100:" in text


def test_nested_tuples_slices_and_walrus():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            m, n = A.shape
            (x, y), *rest = (A[0, 0], A[1, 1]), 1, 2
            if (z := x + y) > sum(rest):
                A[m - 1, n - 1] = z
            rows = [A[i, 0] for i in range(2)]
            A[0, -1], A[1, -2] = rows

    text = body(main)
    assert "A[7, 7] = z" in text and "A[0, 7] = " in text and "A[1, 6] = " in text


def test_a_tile_along_a_dimension_that_is_too_short_is_told():
    """The extents of a tile belong to the last dimensions: `Q[row, head, 0]` is no tile of rows."""
    with pytest.warns(UserWarning, match=r"tile of 32 along dimension 1 of Q, which has 3"):

        @T.prim_func
        def rows_meant(Q: T.Tensor((70, 3, 64), "float16")):
            with T.Kernel(3, 3, threads=128) as (bx, by):
                S = T.alloc_shared((32, 64), "float16")
                T.copy(Q[bx * 32, by, 0], S)

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @T.prim_func
        def padded(X: T.Tensor((60, 60), "float16"), Q: T.Tensor((70, 3, 64), "float16")):
            with T.Kernel(1, 3, threads=128) as (bx, by):
                S = T.alloc_shared((64, 64), "float16")
                T.copy(X[bx * 64, 0], S)
                T.copy(X[-2, 0], S)
                T.copy(Q[bx * 64 : (bx + 1) * 64, by, :], S)
