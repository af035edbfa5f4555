# SPDX-License-Identifier: Apache-2.0
"""`autotune` on machines without a GPU, and the measured path with the wall clock standing in for one."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.autotuner import AutoTuner, set_autotune_inputs
from tilelang.autotuner import search as search_module
from tilelang.autotuner.measure import ProfileOptions
from tilelang.autotuner.worker import compile_in_processes

N = 64


@tilelang.jit(out_idx=[1], target="cpu")
def add_one(n: int = N, block: int = 16, wrong: bool = False) -> Any:
    """y = x + 1 in blocks; `wrong` adds 2 instead, `block=0` cannot be compiled."""
    if block == 0:
        raise ValueError("no blocks")

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            for i in T.Parallel(block):
                y[bx * block + i] = x[bx * block + i] + (2.0 if wrong else 1.0)

    return main


BLOCKS = [{"block": b} for b in (8, 16, 32)]


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures on the CPU, in this process, storing nothing."""
    monkeypatch.setattr(search_module, "_has_gpu", lambda: True)
    monkeypatch.setattr(search_module, "_search_key", lambda *_: None)
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")


def test_without_a_gpu_the_ranking_is_an_estimate_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    tuned = tilelang.autotune(configs=BLOCKS)(add_one)
    logging.getLogger("tilelang").addHandler(caplog.handler)
    kernel = tuned()
    assert "none was timed" in caplog.text
    assert tuned.result is not None and not tuned.result.measured and len(tuned.result.trials) == 3
    assert kernel.config in BLOCKS
    with pytest.raises(ValueError, match="not tuned"):
        kernel.get_tuner_result()
    torch.testing.assert_close(kernel(torch.zeros(N)), torch.ones(N))


def test_a_call_that_sets_a_tunable_is_not_tuned() -> None:
    tuned = tilelang.autotune(configs=BLOCKS)(add_one)
    assert tuned(N, block=16) is add_one(N, block=16)
    assert tuned.result is None


def test_equal_calls_share_one_search() -> None:
    tuned = tilelang.autotune(configs=BLOCKS)(add_one)
    assert tuned(N) is tuned(N)


@pytest.mark.usefixtures("wall_clock")
def test_measured_best_with_failures_recorded() -> None:
    configs = [{"block": b, "wrong": w} for b, w in ((16, False), (0, False), (32, True))]
    result = tilelang.autotune(configs=configs, warmup=1, rep=1, ref_prog=lambda x: x + 1)(add_one).tune()
    assert result.measured and result.config == configs[0]
    assert "no blocks" in result.trials[1].error and "differ" in result.trials[2].error
    assert result.kernel.get_tuner_result()[0] == result.latency > 0
    assert result.ref_latency is not None


@pytest.mark.usefixtures("wall_clock")
def test_without_a_reference_candidates_must_agree() -> None:
    configs = [{"block": 16, "wrong": False}, {"block": 32, "wrong": True}]
    result = tilelang.autotune(configs=configs, warmup=1, rep=1)(add_one).tune()
    assert result.config == configs[0] and "differ" in result.trials[1].error


@pytest.mark.usefixtures("wall_clock")
def test_nothing_works() -> None:
    with pytest.raises(RuntimeError, match="no blocks"):
        tilelang.autotune(configs=[{"block": 0}])(add_one)()


@pytest.mark.usefixtures("wall_clock")
def test_the_captured_inputs_are_used() -> None:
    seen = []
    x = torch.full((N,), 7.0)
    tuner = AutoTuner.from_kernel(add_one, configs=BLOCKS[:1]).set_profile_args(
        ref_prog=lambda t: seen.append(t) or t + 1
    )
    with set_autotune_inputs(x):
        tuner.run(warmup=1, rep=1)
    assert torch.equal(seen[0], x)


def test_a_plain_function_is_compiled_with_the_arguments_of_the_tuner() -> None:
    def kernel(block: int = 8, threads: int | None = None) -> Any:
        return add_one.get_tir(N, block=block)

    tuner = AutoTuner.from_kernel(kernel=kernel, configs=[{"block": 16, "threads": 64}, {"block": 32, "threads": 64}])
    tuner.set_compile_args(out_idx=[-1], target="cpu").set_profile_args(ref_prog=lambda x: x + 1, skip_check=False)
    result = tuner.run(warmup=1, rep=1, use_pipeline=False, enable_grouped_compile=True, early_stop=True)
    assert result.config["block"] in (16, 32)
    torch.testing.assert_close(result.kernel(torch.zeros(N)), torch.ones(N))


def test_misuse() -> None:
    with pytest.raises(ValueError, match="at least one"):
        tilelang.autotune(configs=[])
    with pytest.raises(ValueError, match="stages"):
        tilelang.autotune(configs=[{"stages": 1}])(add_one)
    with pytest.raises(TypeError, match=r"above @tilelang\.jit"):
        tilelang.autotune(configs=BLOCKS)(lambda: None)
    with pytest.raises(ValueError, match="early_stop_factor"):
        tilelang.autotune(configs=BLOCKS, early_stop_factor=0.5)
    with pytest.raises(TypeError, match="unknown profile arguments"):
        AutoTuner.from_kernel(add_one, BLOCKS).set_profile_args(speed=1)


def test_workers_compile_serialised_programs() -> None:
    """One process compiles a good program and reports a bad target; the parent's file is not imported there."""
    program = add_one.get_tir()
    good, bad = {"target": "cpu", "out_idx": [1]}, {"target": "abacus", "out_idx": [1]}
    first, second = compile_in_processes([program, program], [good, bad], num_workers=1, timeout_s=300)
    assert first == "" and "abacus" in second


@tilelang.jit(out_idx=[1], target="cpu")
def scaled(n: int, factor: float = 1.0, block: int = 16, threads: int = 32) -> Any:
    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
            for i in T.Parallel(block):
                y[bx * block + i] = x[bx * block + i] * factor

    return main


def test_arguments_that_do_not_decide_share_a_search() -> None:
    tuned = tilelang.autotune(configs=BLOCKS, do_not_specialize=["n"])(scaled)
    small = tuned(64, 2.0)
    large = tuned(128, 2.0)
    assert large.config == small.config
    assert large(torch.ones(128)).tolist() == [2.0] * 128
    assert len(tuned._chosen) == 1 and len(tuned._results) == 2
    assert tuned(n=64, factor=2.0) is small and len(tuned._results) == 2


def test_configurations_of_different_parameters_have_defaults() -> None:
    tuned = tilelang.autotune(configs=[{"block": 8}, {"threads": 64}])(scaled)
    tuned(64)
    assert tuned.result is not None
    assert [t.config for t in tuned.result.trials] == [{"block": 8, "threads": 32}, {"threads": 64, "block": 16}]


def test_configurations_may_come_from_a_generator() -> None:
    tuned = tilelang.autotune(configs=(c for c in BLOCKS))(scaled)
    assert tuned(64).config in BLOCKS and tuned(128).config in BLOCKS


@pytest.mark.parametrize("configs", [None, {"block": [8, 16]}, 3, [(8, 16)], "block"])
def test_what_is_no_list_of_configurations(configs: Any) -> None:
    with pytest.raises(TypeError, match="dictionar"):
        tilelang.autotune(configs=configs)
    with pytest.raises(TypeError, match="dictionar"):
        AutoTuner.from_kernel(scaled, configs)


def test_decorators_in_the_wrong_places() -> None:
    with pytest.raises(TypeError, match=r"@tilelang.autotune\(configs="):
        tilelang.autotune(scaled)
    with pytest.raises(TypeError, match="stands below tilelang.autotune"):
        tilelang.jit(out_idx=[1])(tilelang.autotune(configs=BLOCKS)(scaled))


def test_a_call_with_wrong_arguments_is_no_failure_of_configurations() -> None:
    tuned = tilelang.autotune(configs=BLOCKS)(scaled)
    with pytest.raises(TypeError, match=r"scaled\(\): missing a required argument: 'n'"):
        tuned()
    with pytest.raises(TypeError, match=r"scaled\(\): got an unexpected keyword argument 'm'"):
        tuned(64, m=3)


def test_programs_and_sources_of_a_tuned_function() -> None:
    tuned = tilelang.autotune(configs=BLOCKS)(scaled)
    assert tuned.get_tir(64).script() == scaled.get_tir(64, **tuned.tune(64).config).script()
    assert tuned.get_tir(64, block=8).script() == scaled.get_tir(64, block=8).script()
    assert "main" in tuned.get_kernel_source(64)


def test_unknown_options_of_a_tuner() -> None:
    tuner = AutoTuner.from_kernel(add_one, BLOCKS)
    with pytest.raises(TypeError, match=r"unknown compile arguments \['foo'\]; there are .*'out_idx'"):
        tuner.set_compile_args(foo=1)
    with pytest.raises(TypeError, match=r"unknown search arguments \['foo'\]; there are .*'max_trials'"):
        tuner.run(foo=1)


def test_options_of_a_configuration_of_an_eager_function() -> None:
    @tilelang.autotune(configs=[{"block": 32, "pass_configs": {"tl.disable_wgmma": True}}])
    @tilelang.jit(target="cpu")
    def add(A: Any, block: int = 16) -> Any:
        n = T.const("n")
        A: T.Tensor((n,), "float32")
        B = T.empty((n,), "float32")
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1
        return B

    assert add(torch.ones(64)).tolist() == [2.0] * 64


def test_a_stored_result_is_of_the_same_inputs_and_tolerances(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        name, major, minor = "some card", 9, 0

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)

    def key(*arguments: Any, **options: Any) -> str | None:
        problem = search_module.Problem(scaled, arguments, {})
        return search_module._search_key(problem, BLOCKS, ProfileOptions(**options))

    assert key(64) == key(64) != key(128)
    assert key(64, do_not_specialize=["n"]) == key(128, do_not_specialize=["n"])
    others = [{"supply_type": tilelang.TensorSupplyType.One}, {"max_mismatched_ratio": 0.5}, {"rtol": 1.0}]
    assert len({key(64), *(key(64, **options) for options in others)}) == 4
    assert key(64, ref_prog=lambda x: x) is None
