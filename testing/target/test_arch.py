# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

import pytest

from tilelang.target.arch import ARCHS, Target, arch_of, parse_target


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, "cuda:sm_90a"),
        ("cuda", "cuda:sm_90a"),
        ("cuda:sm_80", "cuda:sm_80"),
        ("cuda -arch=sm_89", "cuda:sm_89"),
        ("llvm", "cpu"),
        ("c", "cpu"),
        ("cpu", "cpu"),
        ("sim", "sim:sm_90a"),
        ("sim:sm_80", "sim:sm_80"),
    ],
)
def test_targets_are_parsed(text: str | None, shown: str) -> None:
    assert str(parse_target(text)) == shown


def test_a_target_passes_through() -> None:
    target = Target("cuda", ARCHS["sm_86"])
    assert parse_target(target) is target


@pytest.mark.parametrize("text", ["cuda:sm_10", "rocm", "cpu:sm_90a", "", "cuda:90"])
def test_unknown_targets_name_the_known(text: str) -> None:
    with pytest.raises(ValueError, match="known|no GPU architecture"):
        parse_target(text)


def test_an_architecture_is_found_from_anything() -> None:
    assert arch_of("sm_80") is arch_of("cuda:sm_80") is arch_of(parse_target("cuda:sm_80")) is arch_of(ARCHS["sm_80"])
    with pytest.raises(ValueError, match="no GPU architecture"):
        arch_of(parse_target("cpu"))


def test_needs_are_ordered_except_for_specific_ones() -> None:
    assert ARCHS["sm_90"].has("sm_80")
    assert not ARCHS["sm_90"].has("sm_90a")
    assert ARCHS["sm_90a"].has("sm_90a")
    assert ARCHS["sm_90a"].has("sm_90")
    assert not ARCHS["sm_80"].has("sm_89")


def test_a_block_never_gets_more_shared_memory_than_the_sm() -> None:
    for arch in ARCHS.values():
        assert arch.smem_bytes_per_block + arch.smem_bytes_reserved == arch.smem_bytes_per_sm
        assert arch.wgmma == arch.setmaxnreg == arch.name.endswith("a")


def test_targets_need_no_compiler() -> None:
    code = (
        "import sys, tilelang.target.arch, tilelang.target.toolchain; "
        "sys.exit('tvm' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
