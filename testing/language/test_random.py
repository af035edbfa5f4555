# SPDX-License-Identifier: Apache-2.0
"""Philox streams: the generator's published answers, skipping ahead, distributions, nests of T.Parallel."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, on_device

import tilelang.language as T

N = 64
MULTIPLIERS, WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def philox(counter, key):
    c, k = list(counter), list(key)
    for number in range(10):
        if number:
            k = [(a + b) & 0xFFFFFFFF for a, b in zip(k, WEYL, strict=True)]
        p, q = MULTIPLIERS[0] * c[0], MULTIPLIERS[1] * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
    return c


def test_the_reference_itself():
    """Random123, kat_vectors: philox4x32 with 10 rounds."""
    assert philox((0,) * 4, (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox((ones,) * 4, (ones, ones)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def stream(seed, seq, start, count):
    words = []
    for block in range(start // 4, (start + count) // 4 + 1):
        words += philox((block & 0xFFFFFFFF, block >> 32, seq, 0), (seed & 0xFFFFFFFF, seed >> 32))
    return words[start % 4 : start % 4 + count]


def test_streams_of_threads():
    @T.prim_func
    def main(seed: T.int64, O: T.Tensor((N, 7), "uint32")):
        with T.Kernel(1, threads=N):
            tx = T.get_thread_binding()
            T.rng_init(seed, tx, 3 * tx)
            for i in T.serial(7):
                O[tx, i] = T.rng_rand()

    seed = 0x123456789ABCDEF
    o = agree(main, seed, np.zeros((N, 7), "uint32"), archs=("sm_90a",))[1]
    np.testing.assert_array_equal(o, [stream(seed, t, 3 * t, 7) for t in range(N)])


def test_nests_of_parallel_loops():
    """One thread of a 2-D nest draws distinct numbers; after the nest the stream goes on."""

    @T.prim_func
    def main(O: T.Tensor((2, N, 4), "uint32"), P: T.Tensor((N,), "uint32")):
        with T.Kernel(1, threads=N):
            T.rng_init(7)
            for i, j in T.Parallel(N, 4):
                O[0, i, j] = T.rng_rand()
                O[1, i, j] = T.rng_rand()
            P[T.get_thread_binding()] = T.rng_rand()

    o, p = on_device(main, np.zeros((2, N, 4), "uint32"), np.zeros(N, "uint32"))
    want = stream(7, 0, 0, 8 * N + 1)
    np.testing.assert_array_equal(o.reshape(-1), want[:-1])
    np.testing.assert_array_equal(p, np.full(N, want[-1]))


def test_distributions():
    @T.prim_func
    def main(U: T.Tensor((N, 32), "float32"), G: T.Tensor((N, 32), "float32")):
        with T.Kernel(1, threads=N):
            tx = T.get_thread_binding()
            T.rng_init(11, seq=tx)
            for i in T.serial(32):
                U[tx, i] = T.rng_rand_float()
                G[tx, i] = T.rng_rand_float(dist="normal")

    zeros = np.zeros((N, 32), "float32")
    u, g = agree(main, zeros, zeros, archs=("sm_90a",), rtol=1e-4, atol=1e-5)
    assert u.min() > 0 and u.max() <= 1 and abs(u.mean() - 0.5) < 0.03
    assert abs(g.mean()) < 0.1 and abs(g.std() - 1) < 0.1


def test_what_is_refused():
    with pytest.raises(NotImplementedError, match="before T.rng_init"):

        @T.prim_func
        def early(O: T.Tensor((N,), "uint32")):
            with T.Kernel(1, threads=N):
                O[0] = T.rng_rand()

    with pytest.raises(ValueError, match="TL1005"):

        @T.prim_func
        def other(O: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=N):
                T.rng_init(1, generator="curandStateXORWOW_t")
