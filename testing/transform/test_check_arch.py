# SPDX-License-Identifier: Apache-2.0
"""Types that devices cannot address are refused where they are declared, never read by the byte."""

from __future__ import annotations

import pytest
from outline import SM90
from tile_programs import Builder

from tilelang.transform.check_arch import check_arch
from tilelang.transform.errors import SubByteStorage


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_elements_below_a_byte_are_refused(dtype: str) -> None:
    with Builder(32, (1,), {"A": ((64,), dtype), "C": ((64,), "float32")}) as b:
        b.copy(b.args[1], b.shared("S", (64,), "float32"))
    with pytest.raises(SubByteStorage, match="A has 4-bit elements"):
        check_arch(b.func, SM90)


def test_bytes_and_bools_pass() -> None:
    with Builder(32, (1,), {"A": ((64,), "uint8"), "C": ((64,), "bool")}) as b:
        b.copy(b.args[0], b.shared("S", (64,), "uint8"))
    assert check_arch(b.func, SM90) is b.func
