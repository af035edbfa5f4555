# SPDX-License-Identifier: Apache-2.0
"""Views, thread groups, options of a kernel and calls of foreign code."""

from __future__ import annotations

import json

import pytest
from user_programs import body

import tilelang.language as T
from tilelang.ir import attrs
from tilelang.language import errors


def test_views_share_memory():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 8), "float32")
            flat = T.reshape(S, (64,))
            bits = T.view(S, (8, 16), "int16")
            T.copy(A, S)
            flat[9] = 1
            bits[0, 0] = 2

    text = body(main)
    assert "flat = S.view(64)" in text
    assert 'bits = S.view("int16")' in text


def test_transpose_and_quantifiers():
    @T.prim_func
    def main(A: T.Tensor((8, 4), "float32"), B: T.Tensor((4, 8), "float32"), f: T.int32):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 4), "float32")
            D = T.alloc_shared((4, 8), "float32")
            flags = T.alloc_local((3,), "bool")
            T.copy(A, S)
            T.transpose(S, D)
            if T.any_of(flags) and not T.all_of(flags[0:2]):
                T.copy(D, B)

    text = body(main)
    assert "D[j, i] = S[i, j]" in text
    assert "if (flags[0] or flags[1] or flags[2]) and not (flags[0] and flags[1])" in text


def test_thread_groups_and_barriers():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=256) as b:
            tx = T.get_thread_binding()
            with T.ws(1):
                T.dec_max_nreg(24)
                T.sync_threads(3, 128)
            T.sync_threads()
            x = T.warp_reduce_max(A[tx % 8])
            if T.get_lane_idx() == 0 and T.any_sync(x > 0):
                A[b] = T.shfl_down(x, 1)

    text = body(main)
    assert "if tx // 128 == 1:" in text
    assert "setmaxnreg_dec(24)" in text and "bar_sync(3, 128)" in text
    assert text.count("shfl_xor") == 5 and "tx % 32 == 0" in text


def test_options_of_a_function():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        T.annotate_compile_flags("-O3 -lineinfo")
        T.annotate_pass_configs({"tl.disable_tma_lower": True})
        T.import_source("__device__ float twice(float x) { return 2 * x; }")
        with T.Kernel(1, threads=32):
            A[0] = T.call_extern("float32", "twice", A[1])
            T.call_extern("void", "touch", A)

    assert list(main.attrs[attrs.COMPILE_FLAGS]) == ["-O3", "-lineinfo"]
    assert json.loads(main.attrs[attrs.PASS_CONFIGS]) == {"tl.disable_tma_lower": True}
    assert "twice" in main.attrs[attrs.PRELUDE]
    text = body(main)
    assert 'T.call_extern("float32", "twice", A[1])' in text and '"touch", A.data' in text


def test_names_that_are_missing_say_so():
    with pytest.raises(errors.UnsupportedName, match="alloc_descriptor"):
        T.alloc_descriptor  # noqa: B018
    with pytest.raises(AttributeError, match=r"did you mean T\.Pipelined"):
        T.Pipelinde  # noqa: B018
    assert not hasattr(T, "gemm_blockscaled")


def test_copies_with_a_layout_are_nests():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((64,), "float32")
            T.copy(A, f, loop_layout=T.Fragment((64,), lambda i: (i, 0)))
            T.copy(f, O)
            O[0] = T.__exp(f[0])

    text = body(main)
    assert '"tl.loop_layout"' in text and "f[i] = A[i]" in text
    assert "O[0] = T.exp(f[0])" in text
