# SPDX-License-Identifier: Apache-2.0
"""TILELANG_WATCHDOG=1: waits say where they hang, in text, on the simulator and on a device; off, nothing changes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.codegen import nvrtc
from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import launches, walk_list
from tilelang.sim import simulate
from tilelang.support.options import CompileOptions
from tilelang.target.arch import ARCHS
from tilelang.target.toolchain import nvcc_path
from tilelang.transform.pipeline import lower


@tilelang.jit(out_idx=[1])
def pipeline(parity=1):
    """A producer warpgroup and two consumers; with parity 0 the producer waits for slots that nobody gives back."""

    @T.prim_func
    def main(A: T.Tensor((4, 64, 64), "float16"), O: T.Tensor((4, 64, 64), "float16")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((2, 64, 64), "float16")
            full = T.alloc_barrier([1, 1])
            empty = T.alloc_barrier([256, 256])
            tx = T.get_thread_binding()
            if tx >= 256:
                for k in T.serial(4):
                    T.mbarrier_wait_parity(empty[k % 2], k // 2 + parity)  # the producer's
                    T.tma_copy(A[k, :, :], S[k % 2, :, :], barrier=full[k % 2])
                    if tx == 256:
                        T.mbarrier_arrive(full[k % 2])
            else:
                for k in T.serial(4):
                    T.barrier_wait(full[k % 2], k // 2)  # the consumers'
                    for i, j in T.Parallel(64, 64):
                        O[k, i, j] = S[k % 2, j, i]
                    T.mbarrier_arrive(empty[k % 2])

    return main


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().split("\n")
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def device(parity: int, watchdog: bool):
    return lower(pipeline.get_tir(parity), "sm_90a", CompileOptions(watchdog=watchdog))


def waits(func) -> list[DeviceOp]:
    found = (DeviceOp.from_node(s) for k in launches(func) for s in walk_list(k.body))
    return [op for op in found if op is not None and op.name in ("mbar_wait", "mbar_watch")]


def test_off_nothing_changes():
    assert {op.name for op in waits(device(1, False))} == {"mbar_wait"}
    assert "watch" not in lower_to_cuda(device(1, False), ARCHS["sm_90a"]).text


def test_on_every_wait_knows_its_barrier_role_and_line():
    found = [dict(op.statics) for op in waits(device(1, True))]
    name = Path(__file__).name
    assert [(w["name"], w["role"], w["first"], w["place"]) for w in found] == [
        ("empty", "producer", -1, f"{name}:{line_of('the producer' + chr(39) + 's')}"),
        ("full", "consumer", 0, f"{name}:{line_of('the consumers' + chr(39))}"),
    ]
    assert len({w["number"] for w in found}) == len(found)


def test_text_of_the_message():
    text = lower_to_cuda(device(1, True), ARCHS["sm_90a"]).text
    name = Path(__file__).name
    for role, bar, mark in (("producer", "empty", "the producer's"), ("consumer %d", "full", "the consumers'")):
        message = f"({role}) waits for the phase of parity %d of {bar}[%d] at {name}:{line_of(mark)}\\n"
        assert f'printf("tilelang watchdog: block (%d, %d, %d), warp %d {message}"' in text
    assert text.count("__trap();") == 2


@pytest.mark.nvcc
@pytest.mark.skipif(not nvrtc.is_available() and nvcc_path() is None, reason="no CUDA compiler")
def test_it_assembles():
    source = lower_to_cuda(device(1, True), ARCHS["sm_90a"])
    cubin = compile_cuda(source.text, "sm_90a")
    assert "%globaltimer" in cubin.ptx and cubin.spill_bytes == 0


def test_it_is_part_of_the_options(monkeypatch):
    """Which are part of the cache's key."""
    monkeypatch.delenv("TILELANG_WATCHDOG", raising=False)
    off = CompileOptions()
    monkeypatch.setenv("TILELANG_WATCHDOG", "1")
    assert CompileOptions().watchdog and not off.watchdog and repr(CompileOptions()) != repr(off)
    kernel = tilelang.compile(pipeline.get_tir(1), out_idx=[1], target="sim")
    assert "mbar_watch" in kernel.get_kernel_source()
    monkeypatch.setenv("TILELANG_WATCHDOG", "0")
    kernel = tilelang.compile(pipeline.get_tir(1), out_idx=[1], target="sim")
    assert "mbar_watch" not in kernel.get_kernel_source()


def arguments():
    a = np.random.default_rng(0).standard_normal((4, 64, 64)).astype("float16")
    return a, np.zeros_like(a)


@pytest.mark.parametrize("policy", ["rr", "random"])
def test_on_the_simulator(policy):
    a, o = arguments()
    result = simulate(device(1, True), [a, o], policy=policy)
    assert not result.reports, result
    np.testing.assert_array_equal(o, a.transpose(0, 2, 1))
    (report,) = simulate(device(0, True), arguments()).reports
    text = report.render()
    assert report.kind == "deadlock"
    assert "producer (warps 8 to 11) waits for the phase of parity 0 of mbarrier empty[0]" in text
    assert "consumer 0 (warps 0 to 3) waits for the phase of parity 0 of mbarrier full[0]" in text
    assert "consumer 1 (warps 4 to 7) waits for the phase of parity 0 of mbarrier full[0]" in text
    for mark in ("the producer's", "the consumers'"):
        assert f"{Path(__file__).name}:{line_of(mark)}:" in text


HANG = """
import sys
import torch
sys.path.insert(0, {folder!r})
from {module} import pipeline

kernel = pipeline(0)
kernel(torch.zeros(4, 64, 64, dtype=torch.float16, device="cuda"))
torch.cuda.synchronize()
"""


@pytest.mark.gpu
def test_a_hang_on_a_device_says_where(tmp_path):
    """In a process of its own: the trap ends its context."""
    here = Path(__file__)
    script = tmp_path / "hang.py"
    script.write_text(HANG.format(folder=str(here.parent), module=here.stem))
    environment = {**os.environ, "TILELANG_WATCHDOG": "1", "TILELANG_TARGET": "cuda"}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    seconds = time.monotonic() - start
    output = done.stdout + done.stderr
    assert done.returncode != 0, output
    for mark, role, bar in (("the producer's", "producer", "empty"), ("the consumers'", "consumer 0", "full")):
        place = f"{here.name}:{line_of(mark)}"
        assert f"({role}) waits for the phase of parity 0 of {bar}[0] at {place}" in output, output
    assert seconds < 60, f"{seconds} s, with the start of Python and the compilation"
