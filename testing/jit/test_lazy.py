# SPDX-License-Identifier: Apache-2.0
"""The lazy style on the cpu target: specialisation, outputs, caching, kernel object, errors of use."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.runtime.signature import KernelParam

N_DYN = T.dynamic("n")


@tilelang.jit(out_idx=[-1], target="cpu")
def add(M, N=16, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(M, N):
                C[i, j] = A[i, j] + B[i, j]

    return main


@T.prim_func
def dynamic_copy(A: T.Tensor((N_DYN, 4), "float16"), B: T.Tensor((N_DYN, 8), "float32"), k: T.int32):
    with T.Kernel(T.ceildiv(N_DYN, 32), threads=32) as bx:
        for i, j in T.Parallel(32, 8):
            if bx * 32 + i < N_DYN:
                B[bx * 32 + i, j] = T.if_then_else(
                    j < 4, T.cast(A[bx * 32 + i, j % 4], "float32"), T.cast(k, "float32")
                )


def test_call_allocates_and_returns_the_output() -> None:
    kernel = add(8)
    a, b = torch.randn(8, 16), torch.randn(8, 16)
    assert torch.equal(kernel(a, b), a + b)
    assert kernel.out_idx == [2]
    assert kernel.params == [KernelParam("float32", (8, 16))] * 3


def test_equal_arguments_share_a_kernel() -> None:
    assert add(8) is add(8)
    assert add(8, 16) is add(8, N=16)
    assert add(8) is not add(9)


def test_arguments_of_other_types_do_not_share() -> None:
    made = []

    @tilelang.jit(target="cpu")
    def build(config, flag=1):
        made.append((config, flag))
        return add.get_tir(4)

    build({"a": [1, 2]})
    build({"a": [1, 2]})
    build({"a": [1, 2.0]})
    build({"a": [1, 2]}, True)
    assert len(made) == 3
    with pytest.raises(TypeError, match="hashable"):
        build(bytearray(b"x"))


def test_symbols_resolve_outputs() -> None:
    kernel = tilelang.compile(dynamic_copy, out_idx=1, target="cpu")
    for n in (1, 32, 45):
        a = torch.randn(n, 4).half()
        b = kernel(a, 7)
        assert b.shape == (n, 8)
        assert torch.equal(b[:, :4], a.float()) and bool((b[:, 4:] == 7).all())
    assert kernel.params[0] == KernelParam("float16", ("n", 4))


def test_wrong_number_of_inputs() -> None:
    with pytest.raises(ValueError, match=r"takes 2 inputs \(A, B\), given 1.*\['C'\] are allocated"):
        add(8)(torch.zeros(8, 16))


@pytest.mark.parametrize(("out_idx", "text"), [(3, "out of range"), (-4, "out of range"), ([0, -3], "twice")])
def test_bad_out_idx(out_idx: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tilelang.compile(add.get_tir(8), out_idx=out_idx, target="cpu")


def test_scalar_outputs_are_refused() -> None:
    with pytest.raises(ValueError, match="'k' must be a tensor"):
        tilelang.compile(dynamic_copy, out_idx=2, target="cpu")


def test_compile_takes_a_prim_func() -> None:
    with pytest.raises(AssertionError, match=r"T\.prim_func"):
        tilelang.compile(lambda: None)


def test_factory_must_return_a_prim_func() -> None:
    @tilelang.jit(target="cpu")
    def broken(n):
        return n

    with pytest.raises(TypeError, match=r"must return a T\.prim_func, got int"):
        broken(3)


def test_unknown_pass_config_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'tl\.enable_fast_math'"):
        tilelang.jit(pass_configs={"tl.enable_fastmath": True})
    with pytest.raises(ValueError, match="unknown target"):
        tilelang.compile(add.get_tir(8), target="cudda")


def test_par_compile_keeps_order_and_errors() -> None:
    first, second = tilelang.par_compile([add.get_tir(3), add.get_tir(5)], out_idx=-1, target="cpu")
    assert (first.params[0].shape, second.params[0].shape) == ((3, 16), (5, 16))
    kernels = add.par_compile([{"M": 2}, (3,), {"M": "x"}], ignore_error=True)
    assert kernels[2] is None and kernels[0].params[0].shape == (2, 16)


def test_sources_are_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = add(8)
    assert kernel.get_kernel_source()
    kernel.show_source()
    assert kernel.get_kernel_source() in capsys.readouterr().out
    kernel.export_sources(str(tmp_path / "a" / "k.txt"), str(tmp_path / "h.txt"))
    assert (tmp_path / "a" / "k.txt").read_text() == kernel.get_kernel_source()
    with pytest.raises(ValueError, match="cuda"):
        kernel.get_ptx()
    with pytest.raises(ValueError, match="not tuned"):
        kernel.get_tuner_result()


def test_debug_root_path_gets_the_program(tmp_path: Path) -> None:
    @tilelang.jit(target="cpu", debug_root_path=str(tmp_path))
    def build():
        return add.get_tir(8)

    build()
    assert "T.prim_func" in (tmp_path / "main.py").read_text()


def test_strides_are_checked_or_declared() -> None:
    s0, s1 = T.dynamic("s0"), T.dynamic("s1")

    @T.prim_func
    def strided(A: T.StridedTensor((4, 6), (s0, s1), "float32"), B: T.Tensor((4, 6), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(4, 6):
                B[i, j] = A[i, j] + 1.0

    kernel = tilelang.compile(strided, out_idx=-1, target="cpu")
    for a in (torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2], torch.randn(4, 6)):
        assert torch.equal(kernel(a), a + 1)
    with pytest.raises(ValueError, match="stride"):
        add(6, 4)(torch.randn(4, 6).t(), torch.randn(6, 4))


def test_target_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_TARGET", "cpu")
    assert tilelang.compile(add.get_tir(8)).target.kind == "cpu"
    monkeypatch.setenv("TILELANG_TARGET", "nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        tilelang.compile(add.get_tir(8))


def test_profiler_checks_and_times() -> None:
    profiler = add(8).get_profiler()
    profiler.assert_allclose(lambda a, b: a + b)
    profiler.assert_consistent(3)
    with pytest.raises(AssertionError, match="elements differ"):
        profiler.assert_allclose(lambda a, b: a - b)
    assert profiler.do_bench(warmup=1, rep=2) > 0
    dynamic = tilelang.compile(dynamic_copy, out_idx=1, target="cpu").get_profiler(tilelang.TensorSupplyType.One)
    with pytest.raises(ValueError, match="symbol n"):
        dynamic.run_once()
    assert dynamic.get_inputs({"n": 5, "k": 1})[0].shape == (5, 4)


def test_options_of_the_function_and_the_caller() -> None:
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        T.annotate_pass_configs({tilelang.PassConfigKey.TL_DISABLE_WGMMA: True, "tl.enable_fast_math": True})
        T.annotate_compile_flags("-lineinfo")
        with T.Kernel(1, threads=32):
            A[0] = T.float32(1)

    kernel = tilelang.compile(main, target="cpu", pass_configs={"tl.enable_fast_math": False}, compile_flags=["-O1"])
    assert (kernel.options.wgmma, kernel.options.fast_math) == (False, False)
    assert kernel.options.device_flags == ("-lineinfo", "-O1")


def test_parameters_of_the_program_are_named_as_callers_know_them() -> None:
    kernel = tilelang.compile(dynamic_copy, target="cpu")
    assert [p.name for p in kernel.prim_func.params] == ["A_handle", "B_handle", "k"]
    again = tilelang.compile(kernel.prim_func, target="cpu")
    assert [p.name for p in again.prim_func.params] == ["A_handle", "B_handle", "k"]
    b = torch.empty((3, 8))
    again(torch.ones((3, 4), dtype=torch.float16), b, 5)
    assert b.tolist() == [[1.0] * 4 + [5.0] * 4] * 3
