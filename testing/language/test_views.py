# SPDX-License-Identifier: Apache-2.0
"""Views of tiles under another shape or type, the same on all targets."""

from __future__ import annotations

import numpy as np
from agree import agree

import tilelang.language as T

RNG = np.random.default_rng(8)


def floats(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


def test_shared_memory_under_another_shape_and_width():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), H: T.Tensor((32, 128), "int16"), O: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((32, 64), "float32")
            D = T.alloc_shared((64, 32), "float32")
            flat = T.reshape(S, (2048,))
            words = T.view(S, (32, 128), "int16")
            T.copy(A, S)
            T.copy(words, H)
            for i in T.Parallel(2048):
                flat[i] = flat[i] + 1.0
            T.transpose(S, D)
            T.copy(D, O)

    a, h, o = agree(main, floats(32, 64), zeros(32, 128, dtype="int16"), zeros(64, 32))
    np.testing.assert_array_equal(h, a.view("int16"))
    np.testing.assert_array_equal(o, (a + 1).T)


def test_registers_under_another_shape_and_type():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), O: T.Tensor((64,), "float32"), B: T.Tensor((32, 64), "int32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((32, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            G = T.reshape(F, (64, 32))
            T.reduce_sum(G, r, dim=1)
            T.copy(r, O)
            bits = T.view(F, (32, 64), "int32")
            T.copy(bits, B)

    a, o, b = agree(main, floats(32, 64), zeros(64), zeros(32, 64, dtype="int32"))
    np.testing.assert_allclose(o, a.reshape(64, 32).sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(b, a.view("int32"))


def test_a_view_of_an_accumulator_waits_for_the_product():
    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), C: T.Tensor((128, 32), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            seen = T.reshape(acc, (128, 32))
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], S)
                T.gemm(S, S, acc)
            for i, j in T.Parallel(128, 32):
                seen[i, j] = seen[i, j] * 2.0
            T.copy(seen, C)

    a, c = agree(main, floats(256, 64, dtype="float16"), zeros(128, 32), rtol=1e-2, atol=1e-2)
    want = sum(t @ t for t in a.astype("float32").reshape(4, 64, 64)) * 2
    np.testing.assert_allclose(c.reshape(64, 64), want, rtol=1e-2, atol=1e-1)


def test_tiles_that_share_bytes_through_views_are_kept_apart():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            grid = T.reshape(S, (8, 8))
            tx = T.get_thread_binding()
            for k in T.serial(3):
                S[tx] = A[tx] + k
                O[tx] = grid[(63 - tx) // 8, (63 - tx) % 8]

    a, o = agree(main, floats(64), zeros(64))
    np.testing.assert_array_equal(o, a[::-1] + np.float32(2))


def test_a_reshaped_tile_goes_to_a_tensor():
    """The tile lies as its other uses want it, which need not be in boxes of the copy engine."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, threads=128) as b:
            S = T.alloc_shared((32, 64), "float32")
            R = T.alloc_shared((64, 32), "float32")
            T.copy(A[b * 32 : (b + 1) * 32, :], S)
            T.transpose(S, R)
            V = T.reshape(R, (32, 64))
            T.copy(V, O[b * 32, 0])

    a = np.arange(64 * 64, dtype="float32").reshape(64, 64)
    o = agree(main, a, np.zeros_like(a))[1]
    want = np.concatenate([a[32 * b : 32 * b + 32].T.reshape(32, 64) for b in range(2)])
    np.testing.assert_array_equal(o, want)
