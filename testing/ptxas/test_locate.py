# SPDX-License-Identifier: Apache-2.0
"""Warnings of ptxas and spilled registers are reported at the program's lines."""

from __future__ import annotations

import linecache
import runpy
import warnings
from pathlib import Path
from typing import Any, Literal

import pytest

import tilelang
import tilelang.language as T
from tilelang.codegen import locate, nvrtc
from tilelang.codegen.compile import PerformanceNote
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.codegen.locate import locate_notes
from tilelang.jit.driver import clear_memory_cache
from tilelang.jit.performance import are_warnings_wanted
from tilelang.target.arch import arch_of
from tilelang.target.toolchain import find_tool, nvcc_path
from tilelang.transform.pipeline import lower

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(not nvrtc.is_available() and nvcc_path() is None, reason="no CUDA compiler"),
    pytest.mark.skipif(find_tool("nvdisasm") is None, reason="no nvdisasm"),
]


@tilelang.jit
def wide_product(M: int, N: int, K: int):
    """256 x 256 float32 accumulators in 256 threads: 256 registers each, which no thread has."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(N // 256, M // 256, threads=256) as (bx, by):
            As = T.alloc_shared((256, 64), "float16")
            Bs = T.alloc_shared((64, 256), "float16")
            acc = T.alloc_fragment((256, 256), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // 64, num_stages=2):
                T.copy(A[by * 256, k * 64], As)
                T.copy(B[k * 64, bx * 256], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * 256, bx * 256])

    return main


@tilelang.jit
def crowded_warp(K: int):
    """64 x 128 float32 accumulators in one warp: 256 registers each."""

    @T.prim_func
    def main(A: T.Tensor((64, K), "float16"), B: T.Tensor((K, 128), "float16"), C: T.Tensor((64, 128), "float32")):
        with T.Kernel(1, threads=32):
            As = T.alloc_shared((64, 16), "float16")
            Bs = T.alloc_shared((16, 128), "float16")
            acc = T.alloc_fragment((64, 128), "float32")
            T.clear(acc)
            for k in T.serial(K // 16):
                T.copy(A[0, k * 16], As)
                T.copy(B[k * 16, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    return main


def located(program: Any) -> dict[str, list[str]]:
    """Notes by code, with the text of the lines that they name, the worst first."""
    notes = locate_notes(lower_to_cuda(lower(program, "sm_90a"), arch_of("sm_90a")))
    assert all(p.file == __file__ for n in notes for p in n.places or ())
    return {n.code: [linecache.getline(p.file, p.line).strip() for p in n.places or ()] for n in notes}


def test_serialised_wgmmas_and_spills_of_a_product() -> None:
    found = located(wide_product.get_tir(512, 512, 512))
    assert found["C7511"] == ["T.gemm(As, Bs, acc)"]
    assert found["spill"][0] == "T.gemm(As, Bs, acc)"


def test_spills_where_no_wgmma_is() -> None:
    found = located(crowded_warp.get_tir(256))
    assert list(found) == ["spill"]
    assert "T.gemm(As, Bs, acc)" in found["spill"]


def test_the_line_of_inlined_functions_is_that_of_the_call() -> None:
    ptx = """\
.visible .entry first(
	.loc	1 40 3
	add.s32 %r1, %r2, %r3;
	.loc	2 72 9, function_name $L__info_string1, inlined_at 1 41 5
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16;
.visible .entry second(
	ret;
	.file	1 "/home/me/kernel.py"
	.file	2 "/home/me/kernel.cu\""""
    lines = {text.strip().split(" ")[0]: (kernel, line) for kernel, line, text in locate._lines_of_ptx(ptx)}
    assert lines["add.s32"] == ("first", ("/home/me/kernel.py", 40))
    assert lines["wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16;"] == ("first", ("/home/me/kernel.py", 41))
    assert lines["ret;"] == ("second", None)


PROGRAM = """\
import warnings

import tilelang
import tilelang.language as T

@tilelang.jit(target="cuda:sm_90a")
def crowded_warp(K: int):
    @T.prim_func
    def main(A: T.Tensor((64, K), "float16"), B: T.Tensor((K, 128), "float16"), C: T.Tensor((64, 128), "float32")):
        with T.Kernel(1, threads=32):
            As = T.alloc_shared((64, 16), "float16")
            Bs = T.alloc_shared((16, 128), "float16")
            acc = T.alloc_fragment((64, 128), "float32")
            T.clear(acc)
            for k in T.serial(K // 16):
                T.copy(A[0, k * 16], As)
                T.copy(B[k * 16, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    return main
"""


def test_python_warns_at_the_line_also_of_a_kernel_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "program.py"

    def run(text: str, action: Literal["ignore", "always"]) -> tuple[list[warnings.WarningMessage], str]:
        """The warnings about the program, and its note on spills."""
        file.write_text(text)
        linecache.checkcache()
        clear_memory_cache()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action, tilelang.PerformanceWarning)
            kernel = runpy.run_path(str(file))["crowded_warp"](256)
        (note,) = [n for n in kernel.artifact.notes if n.startswith("spill in main_kernel: ")]
        return seen, note

    seen, note = run(PROGRAM, "ignore")
    assert not seen and " (at " not in note  # nobody asked for the second compilation

    (warning,), note = run(PROGRAM, "always")
    assert warning.category is tilelang.PerformanceWarning and warning.filename == str(file)
    assert str(warning.message) == note and f"{file}:{warning.lineno}" in note
    assert PROGRAM.splitlines()[warning.lineno - 1].lstrip().startswith("T.")

    (moved,), _ = run("# one line more\n" + PROGRAM, "always")
    assert moved.lineno == warning.lineno + 1


def test_a_note_renders_with_its_lines() -> None:
    note = PerformanceNote("spill", "main_kernel", "8 bytes of registers are spilled")
    assert note.render() == "warning[spill]: 8 bytes of registers are spilled in main_kernel"
    assert str(note) == "spill in main_kernel: 8 bytes of registers are spilled"


def test_warnings_are_wanted_unless_their_category_is_ignored() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert are_warnings_wanted()
        warnings.filterwarnings("ignore", message="some other text")
        assert are_warnings_wanted()
        warnings.simplefilter("ignore", tilelang.PerformanceWarning)
        assert not are_warnings_wanted()
