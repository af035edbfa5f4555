# SPDX-License-Identifier: Apache-2.0
"""What a kernel costs on the host: a launch, and the first call of a new process.

The times are those of the wall clock of the host, so they compare within one row only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import tilelang
import tilelang.language as T

from ..contest import PUBLIC, Case, Machine, Prepare, Setup
from ..examples import EXAMPLES, ROOT, example
from ..protocol import HostTime, SelfTimed
from ..second_process import PROGRAMS

__all__ = ["cold_compile", "launch"]

MANY = 20  # tensor arguments
SIZE = 1024  # elements: the device is done before the host comes with the next call

# What the programs of the second process are given: the problem, and tiles as ours have them.
_GEMM = {"dtype": "bfloat16", "transpose_B": True, "out_dtype": "bfloat16"}
_GEMM_TILE = {"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 4, "threads": 256, "panel": 10}
_ATTENTION = {"batch": 1, "heads": 12, "dim": 64, "causal": True, "dtype": "float16"}
_ATTENTION_TILE = {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256}


@tilelang.jit
def gather_sums(N, threads=128):
    """A kernel of MANY tensors (N,): the last one becomes the sum of the others."""

    @T.prim_func
    def main(
        x0: T.Tensor((N,), "float32"), x1: T.Tensor((N,), "float32"), x2: T.Tensor((N,), "float32"),
        x3: T.Tensor((N,), "float32"), x4: T.Tensor((N,), "float32"), x5: T.Tensor((N,), "float32"),
        x6: T.Tensor((N,), "float32"), x7: T.Tensor((N,), "float32"), x8: T.Tensor((N,), "float32"),
        x9: T.Tensor((N,), "float32"), x10: T.Tensor((N,), "float32"), x11: T.Tensor((N,), "float32"),
        x12: T.Tensor((N,), "float32"), x13: T.Tensor((N,), "float32"), x14: T.Tensor((N,), "float32"),
        x15: T.Tensor((N,), "float32"), x16: T.Tensor((N,), "float32"), x17: T.Tensor((N,), "float32"),
        x18: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(N, threads), threads=threads) as bx:
            for t in T.Parallel(threads):
                i = bx * threads + t
                if i < N:
                    first = x0[i] + x1[i] + x2[i] + x3[i] + x4[i] + x5[i] + x6[i] + x7[i] + x8[i] + x9[i]
                    y[i] = first + x10[i] + x11[i] + x12[i] + x13[i] + x14[i] + x15[i] + x16[i] + x17[i] + x18[i]

    return main


def launch(machine: Machine) -> list[Case]:
    """Host time of a call: three tensors, many, and three with tensor maps."""
    return [
        Case("launch, 3 tensors", lambda: _three(machine)),
        Case(f"launch, {MANY} tensors", lambda: _many(machine)),
        Case("launch, 3 tensors by TMA", lambda: _maps(machine)),
    ]


def _three(machine: Machine) -> Setup:
    a, b = (machine.randn(1, SIZE, dtype=torch.float32) for _ in range(2))
    out = torch.empty_like(a)
    add = example("elementwise", "example_elementwise").add

    def ours() -> Any:
        kernel = tilelang.compile(add.get_tir(1, SIZE, "float32", 1, 256, 128))

        def call() -> torch.Tensor:
            kernel(a, b, out)
            return out

        return call

    def allocating() -> Any:
        kernel = add(1, SIZE, "float32", 1, 256, 128)
        return lambda: kernel(a, b)

    calls: dict[str, Prepare] = {
        "tilelang": ours,
        "tilelang, output made": allocating,
        "triton": lambda: _triton("add_into", a, b, out),
        "torch add(out=)": lambda: lambda: torch.add(a, b, out=out),
    }
    arguments, tile = {"M": 1, "N": SIZE, "dtype": "float32"}, {"block_M": 1, "block_N": 256, "threads": 128}
    calls |= machine.public("elementwise", "add_into", arguments, a, b, out, choices=[tile])
    calls |= machine.public("elementwise", "add", arguments, a, b, choices=[tile], label=f"{PUBLIC}, output made")
    return Setup(a + b, calls, 1e-6, clock=HostTime())


def _many(machine: Machine) -> Setup:
    inputs = [machine.randn(SIZE, dtype=torch.float32) for _ in range(MANY - 1)]
    out = torch.empty_like(inputs[0])

    def ours() -> Any:
        kernel = gather_sums(SIZE)

        def call() -> torch.Tensor:
            kernel(*inputs, out)
            return out

        return call

    calls: dict[str, Prepare] = {"tilelang": ours, "triton": lambda: _triton("sum_many", inputs, out)}
    calls |= machine.public("elementwise", "gather_sums", {"N": SIZE}, *inputs, out, choices=[{"threads": 128}])
    return Setup(torch.stack(inputs).sum(0), calls, 1e-5, clock=HostTime())


def _maps(machine: Machine) -> Setup:
    a, b = machine.randn(128, 128), machine.randn(256, 128)

    def ours() -> Any:
        kernel = example("gemm", "example_gemm").matmul(128, 256, 128, "bfloat16", False, True)
        return lambda: kernel(a, b)

    calls: dict[str, Prepare] = {
        "tilelang, output made": ours,
        "triton, output made": lambda: _triton("matmul", a, b, True, 64, a.dtype, 1),
        "torch matmul": lambda: lambda: a @ b.T,
    }
    arguments = {"M": 128, "N": 256, "K": 128, **_GEMM}
    calls |= machine.public("gemm", "matmul", arguments, a, b, choices=[_GEMM_TILE], label=f"{PUBLIC}, output made")
    return Setup(a.float() @ b.float().T, calls, 4e-3, clock=HostTime())


def _triton(name: str, *arguments: Any) -> Any:
    from .. import triton_peers

    return getattr(triton_peers, name)(*arguments)


# A first call in a new process, imports excluded; the cache folder is given. Prints milliseconds.
_FIRST_CALL = """
import sys, time
sys.path[:0] = {paths!r}
import torch
{imports}
start = time.perf_counter()
{call}
if torch.cuda.is_available(): torch.cuda.synchronize()
print(1e3 * (time.perf_counter() - start))
"""
_OURS_IMPORTS = """
import tilelang, tilelang.transform.pipeline, tilelang.codegen.compile, tilelang.codegen.cuda
from {module} import {factory}
target = None if torch.cuda.is_available() else "cuda:sm_90a"
"""
_KERNELS = {
    "gemm": ("example_gemm", "matmul", "({n}, {n}, {n})"),
    "attention": ("example_mha_fwd_bhsd", "flashattn", "(1, 12, {n}, {n}, 64, True)"),
}
_PUBLIC_CALLS = {
    "gemm": ("gemm", "matmul", lambda n: {"M": n, "N": n, "K": n, **_GEMM, **_GEMM_TILE}),
    "attention": ("attention", "attention", lambda n: {"length": n, **_ATTENTION, **_ATTENTION_TILE}),
}
_TRITON_CALLS = {
    "gemm": "a = torch.randn({n}, {n}, device='cuda').bfloat16()\ntriton_peers.matmul(a, a, True, 64, a.dtype)()",
    "attention": "q = torch.randn(1, 12, {n}, 64, device='cuda').half()\ntriton_peers.attention(q, q, q, True)()",
}


def cold_compile(machine: Machine) -> list[Case]:
    """Milliseconds until a kernel of a new process can run: nothing cached, and from its disk cache."""
    n = 256 if machine.small else 2048
    return [
        Case(
            f"{'cached' if warm else 'cold'} {kind}", lambda kind=kind, warm=warm: _compilation(machine, kind, n, warm)
        )
        for kind in _KERNELS
        for warm in (False, True)
    ]


def _compilation(machine: Machine, kind: str, n: int, warm: bool) -> Setup:
    module, factory, arguments = _KERNELS[kind]
    ours = _FIRST_CALL.format(
        paths=[str(ROOT), *(str(EXAMPLES / folder) for folder in ("gemm", "flash_attention"))],
        imports=_OURS_IMPORTS.format(module=module, factory=factory),
        call=f"{factory}.with_options(target=target){arguments.format(n=n)}",
    )
    triton = _FIRST_CALL.format(
        paths=[str(ROOT / "benchmarks")],
        imports="torch.zeros(1, device='cuda')\nfrom suite import triton_peers",
        call=_TRITON_CALLS[kind].format(n=n),
    )
    calls: dict[str, Prepare] = {"tilelang": lambda: _process(ours, warm), "triton": lambda: _process(triton, warm)}
    if machine.peer is not None:
        file, factory, given = _PUBLIC_CALLS[kind]
        public = _FIRST_CALL.format(
            paths=[str(PROGRAMS)],
            imports=f"import tilelang, tilelang.language\nfrom {file} import {factory}",
            call=f"{factory}(**{given(n)!r})",
        )
        environment = machine.peer.environment()
        calls[PUBLIC] = lambda: _process(public, warm, environment)
    return Setup(None, calls, clock=SelfTimed(), min_rounds=1)


def _process(code: str, warm: bool, environment: Mapping[str, str] = os.environ) -> Any:
    """A call that gives the milliseconds of `code` in a process of its own, `warm` with what an earlier one cached."""

    def run(cache: str) -> float:
        env = {**environment, "TILELANG_CACHE_DIR": cache, "TRITON_CACHE_DIR": str(Path(cache) / "triton")}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=50)
        if done.returncode:
            raise RuntimeError(done.stderr[-300:])
        return float(done.stdout.split()[-1])

    def call() -> float:
        with tempfile.TemporaryDirectory() as cache:
            if warm:
                run(cache)
            return run(cache)

    return call
