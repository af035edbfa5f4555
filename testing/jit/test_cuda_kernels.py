# SPDX-License-Identifier: Apache-2.0
"""The cuda target without a device: compiling, the disk cache, export, launch plans, and the error of a call."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.codegen import nvrtc
from tilelang.jit import cache, driver, lowering
from tilelang.runtime import device
from tilelang.runtime.arguments import ArgumentChecker
from tilelang.runtime.kernel import CudaKernel
from tilelang.target.toolchain import nvcc_path

N = T.dynamic("n")


@T.prim_func
def double(A: T.Tensor((N, 128), "float16"), B: T.Tensor((N, 128), "float16"), scale: T.float32):
    with T.Kernel(T.ceildiv(N, 32), threads=128) as bx:
        for i, j in T.Parallel(32, 128):
            if bx * 32 + i < N:
                B[bx * 32 + i, j] = T.cast(T.cast(A[bx * 32 + i, j], "float32") * scale, "float16")


pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(not nvrtc.is_available() and nvcc_path() is None, reason="needs NVRTC or nvcc"),
]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty disk cache, nothing in memory, and a machine without a device."""
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILELANG_LIBCUDA", str(tmp_path / "no_such_driver.so"))
    monkeypatch.setattr(cache, "_switch", True)
    driver.clear_memory_cache()
    return tmp_path


def compiled() -> Any:
    driver.clear_memory_cache()
    return tilelang.compile(double, out_idx=1, target="cuda:sm_90a")


def test_plan_and_sources(fresh: Path) -> None:
    kernel = compiled()
    plan = kernel.adapter.kernel.plan
    (launch,) = plan.kernels
    assert plan.arch == "sm_90a"
    assert launch.block == ("128", "1", "1")
    checker = ArgumentChecker(plan.signature, "cpu")
    slots = checker.check([torch.zeros(70, 128).half(), torch.zeros(70, 128).half(), 1.0])
    from tilelang.runtime import expression

    assert expression.evaluate(launch.grid[0], slots) == 3
    assert {p.kind for p in launch.params} == {"pointer", "scalar", "value"}
    assert plan.signature.args[0].align == 16  # vector accesses
    assert "__global__" in kernel.get_kernel_source()
    assert ".target sm_90a" in kernel.get_ptx()
    assert '"grid"' in kernel.get_host_source()


def test_call_without_a_device_says_so(fresh: Path) -> None:
    kernel = compiled()
    with pytest.raises(RuntimeError, match="cannot run here: the CUDA driver is not installed"):
        kernel(torch.zeros(4, 128).half(), 1.0)


def test_second_compilation_comes_from_disk(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled()
    (folder,) = (fresh / "cache").glob("*/kernels/*")
    assert {p.name for p in folder.iterdir()} == {"kernel.cu", "kernel.cubin", "kernel.ptx", "plan.json", "notes.json"}

    def refuse(*args: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr("tilelang.jit.backend_cuda.lower_device", refuse)
    again = compiled()
    assert again is not first
    assert again.adapter == dataclasses.replace(first.adapter, kernel=again.adapter.kernel)
    assert again.adapter.kernel.plan == first.adapter.kernel.plan
    assert again.adapter.cubin == first.adapter.cubin


def test_other_options_are_another_kernel(fresh: Path) -> None:
    compiled()
    tilelang.compile(double, out_idx=1, target="cuda:sm_90a", pass_configs={"tl.enable_fast_math": True})
    assert len(list((fresh / "cache").glob("*/kernels/*"))) == 2


def test_broken_cache_entry_is_replaced(fresh: Path) -> None:
    compiled()
    (folder,) = (fresh / "cache").glob("*/kernels/*")
    (folder / "plan.json").write_text("{")
    assert compiled().adapter.cubin


def test_disabled_cache_is_not_written(fresh: Path) -> None:
    tilelang.disable_cache()
    compiled()
    assert not (fresh / "cache").exists()
    assert not tilelang.is_cache_enabled()
    tilelang.enable_cache()
    assert tilelang.is_cache_enabled()


def test_exported_kernel_loads_without_the_compiler(fresh: Path) -> None:
    kernel = compiled()
    kernel.export_library(str(fresh / "out"))
    code = (
        "import sys; from tilelang.runtime import load; k = load(sys.argv[1]); "
        "assert k.signature.name == 'double' and 'tvm' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(fresh / "out")], check=True)
    assert CudaKernel.load(fresh / "out").plan == kernel.adapter.kernel.plan


def test_lower_shows_the_device_program() -> None:
    artifact = tilelang.lower(double, target="cuda:sm_90a")
    assert "__global__" in artifact.kernel_source
    assert [p.shape for p in artifact.params] == [("n", 128), ("n", 128), ()]
    with pytest.raises(ValueError, match="cpu target"):
        tilelang.lower(double, target="cpu")


def test_default_target_without_a_device_is_cpu(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILELANG_TARGET", raising=False)
    assert device.device_count() == 0
    assert tilelang.compile(double, out_idx=1).target.kind == "cpu"


def test_lowering_is_given_the_options(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = lowering.lower_device

    def spy(func: Any, target: Any, options: Any) -> Any:
        seen.append(options)
        return original(func, target, options)

    monkeypatch.setattr("tilelang.jit.backend_cuda.lower_device", spy)
    configs = {tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True, "tl.disable_tma_lower": True}
    tilelang.compile(double, target="cuda:sm_90a", pass_configs=configs)
    assert (seen[0].warp_specialize, seen[0].tma) == (False, False)
