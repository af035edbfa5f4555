# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.runtime.signature import KernelParam
from tilelang.utils import language, sparse, target, tensor


def test_where_buffers_live():
    asked = []

    @T.prim_func
    def main(A: T.Tensor((8, 4), "float16"), n: T.int32):
        with T.Kernel(1, threads=32):
            tiles = [T.alloc_shared((4,), "bool"), T.alloc_shared((8, 4), "float16")]
            tiles += [T.alloc_fragment((8, 4), "float16"), T.alloc_local((4,), "float16"), A]
            for tile in tiles:
                asked.append([f(tile) for f in QUESTIONS] + [language.get_buffer_elems(tile)])
            asked.append([f(A[0:2, 0:2]) for f in QUESTIONS])
            T.clear(tiles[2])

    assert asked[:5] == [
        [False, True, False, False, False, 4],
        [False, True, True, False, False, 32],
        [False, False, False, True, False, 32],
        [False, False, False, False, True, 4],
        [True, False, False, False, False, 32],
    ]
    assert asked[5] == [True, False, False, False, False]
    with pytest.raises(TypeError, match="a buffer or a region"):
        language.is_shared(3)


QUESTIONS = (
    language.is_global,
    language.is_shared,
    language.is_shared_dynamic,
    language.is_fragment,
    language.is_local,
)


def test_tensors_of_parameters():
    supply = tensor.get_tensor_supply(tilelang.TensorSupplyType.One, device="cpu")
    assert torch.equal(supply(KernelParam("float16", (2, 3))), torch.ones(2, 3).half())
    with pytest.raises(ValueError, match="only a call decides"):
        supply(KernelParam("float16", ("n", 3)))


def test_questions_about_targets():
    hopper, ampere = "cuda:sm_90a", "cuda:sm_86"
    assert target.target_is_hopper(hopper) and target.target_is_ampere(ampere) and not target.target_is_ampere(hopper)
    assert target.target_has_bulk_copy(hopper) and not target.target_has_bulk_copy(ampere)
    assert target.target_has_async_copy(ampere) and target.target_has_ldmatrix(ampere)
    assert target.target_has_stmatrix(hopper) and not target.target_has_stmatrix(ampere)
    assert target.target_get_warp_size(hopper) == 32 and target.target_get_warp_size("cpu") == 1
    others = (target.target_is_volta, target.target_is_turing, target.target_is_sm100, target.target_is_hip)
    assert not any(ask(hopper) or ask("cpu") for ask in others)
    assert not target.check_hip_availability() and not target.check_metal_availability()


def test_sparse_integers():
    matrix = sparse.randint_semi_sparse(8, 16, 1, 5, device="cpu")
    assert matrix.dtype == torch.int8 and (matrix.reshape(8, 4, 4) != 0).sum(-1).eq(2).all()
    assert sparse.randint_semi_sparse(8, 16, 1, 5, device="cpu", transposed=True).shape == (16, 8)
