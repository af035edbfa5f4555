# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on 8- and 16-bit integers wraps at their own width in the CUDA text."""

from __future__ import annotations

import pytest
from tvm import tirx

from tilelang.codegen.narrow_integers import wrap_narrow_integers


def text(make, dtype: str) -> str:
    x = tirx.Var("x", dtype)
    out = tirx.decl_buffer((1,), dtype, "out", layout=None)
    func = tirx.PrimFunc([out, x], tirx.BufferStore(out, make(x), [0]))
    return str(wrap_narrow_integers(func).body.value)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16"])
def test_a_shift_left_is_cut_before_it_is_used(dtype: str) -> None:
    got = text(lambda x: (x << tirx.const(4, dtype)) >> tirx.const(4, dtype), dtype)
    assert got.replace(" ", "").startswith(f'T.Cast("{dtype}",T.Cast("int32",x)<<')


def test_wide_integers_and_bit_operations_stay() -> None:
    assert "Cast" not in text(lambda x: x << tirx.const(4, "int32"), "int32")
    assert "Cast" not in text(lambda x: x & tirx.const(15, "uint8"), "uint8")
