# SPDX-License-Identifier: Apache-2.0
"""2:4 sparse products: kept elements and their places, on all targets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from agree import agree

import tilelang.language as T
from tilelang.language.errors import BadChoice, GemmShape
from tilelang.utils.sparse import compress, randn_semi_sparse

RNG = np.random.default_rng(0)


def product(dtype, word, trans_a=False, trans_e=False, trans_b=False, accum="float32", scope="shared"):
    bits = int("".join(filter(str.isdigit, word)))
    a_shape, e_shape, b_shape = (64, 32), (64, 64 // bits), (64, 48)
    a_tile, e_tile = (a_shape[::-1] if trans_a else a_shape), (e_shape[::-1] if trans_e else e_shape)
    b_tile = b_shape[::-1] if trans_b else b_shape
    alloc = T.alloc_shared if scope == "shared" else T.alloc_fragment

    def whole(tile, transposed):
        return (tile[0] * 2, tile[1]) if transposed else (tile[0], tile[1] * 2)

    @T.prim_func
    def main(
        A: T.Tensor(whole(a_tile, trans_a), dtype),
        E: T.Tensor(whole(e_tile, trans_e), word),
        B: T.Tensor(whole(b_tile, not trans_b) if not trans_b else whole(b_tile, False), dtype),
        C: T.Tensor((64, 48), accum),
    ):
        with T.Kernel(1, threads=128):
            As = alloc(a_tile, dtype)
            Es = alloc(e_tile, word)
            Bs = T.alloc_shared(b_tile, dtype)
            acc = T.alloc_fragment((64, 48), accum)
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[k * 32, 0] if trans_a else A[0, k * 32], As)
                T.copy(E[k * e_tile[0], 0] if trans_e else E[0, k * e_tile[1]], Es)
                T.copy(B[0, k * 64] if trans_b else B[k * 64, 0], Bs)
                T.gemm_sp(As, Es, Bs, acc, trans_a, trans_e, trans_b)
            T.copy(acc, C)

    return main


def sparse(dtype):
    """A matrix (64, 128) with two zeros in every four elements, some of them with more."""
    dense = RNG.integers(-3, 4, (64, 32, 4)).astype("float32")
    order = RNG.random(dense.shape).argsort(-1)
    return np.where(order < 2, dense, 0).reshape(64, 128).astype(getattr(ml_dtypes, dtype, None) or dtype)


def compressed(dense, word):
    bits = torch.from_numpy(dense.view(f"int{8 * dense.itemsize}").copy())
    kept, places = compress(bits, meta_dtype=getattr(torch, word))
    return kept.numpy().view(dense.dtype), places.numpy()


@pytest.mark.parametrize(
    ("dtype", "word", "accum"),
    [
        ("float16", "int16", "float32"),
        ("bfloat16", "uint8", "float32"),
        ("float16", "int32", "float16"),
        ("int8", "uint8", "int32"),
        ("float8_e4m3fn", "uint8", "float32"),
    ],
)
def test_types(dtype, word, accum):
    one_byte = dtype in ("int8", "float8_e4m3fn")  # tensor cores take these with B transposed
    dense, b = sparse(dtype), RNG.integers(-3, 4, (128, 48)).astype(getattr(ml_dtypes, dtype, None) or dtype)
    a, e = compressed(dense, word)
    given = np.ascontiguousarray(b.T) if one_byte else b
    got = agree(product(dtype, word, trans_b=one_byte, accum=accum), a, e, given, np.zeros((64, 48), accum))[3]
    np.testing.assert_array_equal(got.astype("float32"), dense.astype("float32") @ b.astype("float32"))


@pytest.mark.parametrize(("trans_a", "trans_e", "scope"), [(True, True, "shared"), (False, True, "fragment")])
def test_transposed_operands_and_registers(trans_a, trans_e, scope):
    dense, b = sparse("float16"), RNG.integers(-3, 4, (128, 48)).astype("float16")
    a, e = compressed(dense, "int16")
    a, e = (np.ascontiguousarray(x.T) if t else x for x, t in ((a, trans_a), (e, trans_e)))
    func = product("float16", "int16", trans_a, trans_e, scope=scope)
    got = agree(func, a, e, b, np.zeros((64, 48), "float32"))[3]
    np.testing.assert_array_equal(got, dense.astype("float32") @ b.astype("float32"))


def test_what_is_compressed_comes_back():
    dense = randn_semi_sparse(32, 64, device="cpu")
    assert int((dense.reshape(32, 16, 4) != 0).sum(-1).max()) == 2
    kept, places = compress(dense, meta_dtype=torch.uint8)
    spread = torch.zeros(32, 16, 4, dtype=torch.float16)
    codes = torch.stack([places & 15, places >> 4], -1).reshape(32, 16).long()
    where = torch.stack([codes & 3, codes >> 2], -1)
    spread.scatter_(-1, where, kept.reshape(32, 16, 2))
    assert torch.equal(spread.reshape(32, 64), dense)
    assert all(
        torch.equal(x, y.t()) for x, y in zip(compress(dense.t(), transposed=True), compress(dense), strict=True)
    )
    with pytest.raises(ValueError, match="more than two"):
        compress(torch.ones(4, 64))


def test_operands_that_do_not_fit():
    def trace(kind, word, columns):
        @T.prim_func
        def main(A: T.Tensor((64, 32), kind)):
            with T.Kernel(1, threads=128):
                As = T.alloc_shared((64, 32), kind)
                Es = T.alloc_shared((64, columns), word)
                Bs = T.alloc_shared((64, 48), kind)
                acc = T.alloc_fragment((64, 48), "float32")
                T.gemm_sp(As, Es, Bs, acc)

    with pytest.raises(GemmShape, match="A_sparse has 64, E has 128"):
        trace("float16", "int16", 8)
    with pytest.raises(BadChoice, match="8 or 16 bits"):
        trace("float32", "int16", 4)
    with pytest.raises(BadChoice, match="the type of E"):
        trace("float16", "float16", 4)
