# SPDX-License-Identifier: Apache-2.0
"""Targets, pass configs and the freezing of compile-time arguments."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from tvm.target import Target as TvmTarget

import tilelang
from tilelang.contrib import nvcc
from tilelang.jit.freeze import freeze
from tilelang.jit.pass_config import PassConfigKey, effect_of, freeze_pass_configs, options_from
from tilelang.jit.target import resolve_target
from tilelang.support.options import CompileOptions


@pytest.mark.parametrize(
    ("given", "kind", "arch"),
    [
        ("cuda", "cuda", "sm_90a"),
        ("cuda -arch=sm_80", "cuda", "sm_80"),
        ("cuda:sm_90", "cuda", "sm_90"),
        ({"kind": "cuda", "arch": "sm_89"}, "cuda", "sm_89"),
        (TvmTarget({"kind": "cuda", "arch": "sm_80"}), "cuda", "sm_80"),
        ("sim", "sim", "sm_90a"),
        ("llvm", "cpu", None),
        ("cpu", "cpu", None),
    ],
)
def test_targets(monkeypatch: pytest.MonkeyPatch, given: object, kind: str, arch: str | None) -> None:
    monkeypatch.setenv("TILELANG_CUDA_ARCH", "sm_90a")
    target = resolve_target(given)
    assert (target.kind, target.arch.name if target.arch else None) == (kind, arch)
    assert resolve_target(target) is target


def test_environment_decides_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_CUDA_ARCH", "sm_80")
    monkeypatch.setenv("TILELANG_TARGET", "sim")
    assert str(resolve_target()) == "sim:sm_80"
    assert resolve_target("cpu").kind == "cpu"
    monkeypatch.setenv("TILELANG_CUDA_ARCH", "sm_12345")
    with pytest.raises(ValueError, match="sm_12345"):
        resolve_target("cuda")


def test_compute_version_answers_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_CUDA_ARCH", "sm_90a")
    assert nvcc.get_target_compute_version() == "9.0"
    assert nvcc.get_target_compute_version("cuda:sm_80") == "8.0"
    assert nvcc.parse_compute_version("10.3") == (10, 3)
    assert nvcc.get_target_arch("9.0") == "90a"
    assert nvcc.have_tma() and nvcc.is_hopper() and not nvcc.have_tma("cuda:sm_80")
    with pytest.raises(ValueError, match=r"looks like '9\.0'"):
        nvcc.parse_compute_version("nine")


def test_every_key_has_an_effect_or_a_reason() -> None:
    fields = {f.name for f in dataclasses.fields(CompileOptions)}
    for key in PassConfigKey:
        text = effect_of(key)
        assert text.removeprefix("sets option ") in fields or text.startswith(("accepted, no effect: ", "refused: "))


def test_every_option_is_read() -> None:
    """An option that nothing looks at would be a switch that is connected to nothing."""
    folder = Path(tilelang.__file__).parent
    texts = [p.read_text() for p in folder.rglob("*.py") if p.name not in ("options.py", "pass_config.py")]
    unread = [f.name for f in dataclasses.fields(CompileOptions) if not any(f"options.{f.name}" in t for t in texts)]
    assert not unread


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(ValueError, match="the list of passes is fixed"):
        options_from({"tir.add_lower_pass": [(1, print)]})
    options_from({"tir.add_lower_pass": []})


def test_keys_by_member_value_and_name() -> None:
    for key in (PassConfigKey.TL_DISABLE_TMA_LOWER, "tl.disable_tma_lower", "TL_DISABLE_TMA_LOWER"):
        assert options_from({key: True}) == CompileOptions(tma=False)
        assert options_from({key: False}) == CompileOptions()
    options = options_from({"tl.ptxas_register_usage_level": 5, "tl.device_compile_flags": "-a -b"}, "-c")
    assert (options.register_level, options.device_flags) == (5, ("-a", "-b", "-c"))


def test_unknown_keys_name_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'tl\.disable_warp_specialized'"):
        freeze_pass_configs({"tl.disable_warp_specialised": True})
    with pytest.raises(TypeError, match="PassConfigKey or its string"):
        freeze_pass_configs({3: True})


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("tl.disable_wgmma", "false", "True or False"),
        ("tl.enable_fast_math", None, "True or False"),
        ("tl.ptxas_register_usage_level", 99, "a whole number from 0 to 10"),
        ("tl.ptxas_register_usage_level", True, "a whole number from 0 to 10"),
        ("tl.cluster", 3, "a whole number from 1 to 2"),
        ("tl.raster_panel", -1, "a whole number from 0"),
        ("tl.lazy_rescale", "8", "a number from 0"),
        ("tl.dump_ir_path", 3, "a string or a path"),
        ("tl.device_compile_flags", 3, "a string or a list of strings"),
    ],
)
def test_values_that_a_key_does_not_take(key: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"pass_configs key {key!r} is {allowed}, not {value!r}")):
        options_from({key: value})


def test_values_that_keys_take() -> None:
    assert options_from({"tl.disable_wgmma": 1, "tl.lazy_rescale": 8, "tl.dump_ir_path": Path("a")}) == CompileOptions(
        wgmma=False, lazy_rescale=8.0, dump_ir_dir="a"
    )


def test_freezing_tells_types_apart() -> None:
    assert freeze(1) != freeze(True) != freeze(1.0)
    assert freeze({"a": [1, {2}]}) == freeze({"a": [1, {2}]})
    assert freeze([1]) != freeze((1,))
    hash(freeze(({"a": [1, {2, 3}]}, [None, "x"])))
    with pytest.raises(TypeError, match="bytearray"):
        freeze([bytearray()])


@pytest.mark.parametrize(
    "given, wanted",
    [
        ("cuda -keys=cuda,gpu -arch=sm_80", "cuda:sm_80"),
        ("cuda -arch=sm_90a -max_num_threads=1024", "cuda:sm_90a"),
        ('{"kind": "cuda", "arch": "sm_80"}', "cuda:sm_80"),
        ('{"kind": "llvm", "keys": ["cpu"]}', "cpu"),
    ],
)
def test_targets_as_tvm_writes_them(given, wanted):
    assert str(resolve_target(given)) == wanted


def test_a_target_object_without_an_architecture_means_the_device(monkeypatch):
    from tvm import target

    assert str(resolve_target(target.Target("cuda"))) == "cuda:sm_90a"
    assert str(resolve_target(target.Target({"kind": "cuda", "arch": "sm_90"}))) == "cuda:sm_90a"
    assert str(resolve_target(target.Target({"kind": "cuda", "arch": "sm_80"}))) == "cuda:sm_80"
    assert str(resolve_target("cuda -arch=sm_90")) == "cuda:sm_90"  # which the program says itself


def test_a_target_that_is_no_json():
    with pytest.raises(ValueError, match="is no JSON"):
        resolve_target('{"kind": cuda}')
