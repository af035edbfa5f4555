# SPDX-License-Identifier: Apache-2.0
"""Runs one fuzz program on the cpu target and on a simulated device, against numpy."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
from fuzz_program import NUMPY, FuzzProgram

from tilelang.codegen.cpu import build_cpu
from tilelang.ir.spec import verify
from tilelang.sim import Program
from tilelang.support.errors import UserError
from tilelang.support.options import CompileOptions
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import LEVELS, lower

_number = 0


def trace(text: str) -> Any:
    """The PrimFunc of a program's text; the front end reads sources, so that it gets a file name of its own."""
    global _number
    _number += 1
    name = f"<fuzz {_number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": name}
    exec(compile(text, name, "exec"), scope)
    return scope["main"]


def differences(program: FuzzProgram, verified: bool = True) -> str:
    """What is wrong with the compiler's version of a program; "" when nothing is. UserError when it is refused."""
    func = trace(program.text())
    want = program.expected()
    got = program.arguments()
    build_cpu(func, poison=True)(*got.values())
    if wrong := _compare(program, got, want):
        return f"cpu: {wrong}"
    options = CompileOptions(**program.options)
    device = lower(func, ARCHS[program.arch], options)
    if verified:
        for number, level in enumerate(LEVELS, start=1):
            at = device if level == "device" else lower(func, ARCHS[program.arch], options, stop_after=level)
            if faults := verify(at, number):
                return f"level {level} is not well formed: {faults}"
    got = program.arguments()
    reports, _ = Program(device).run(list(got.values()), policy=program.policy, seed=program.seed)
    if reports:
        return f"sim ({program.policy}): " + "\n".join(map(str, reports[:8]))
    if wrong := _compare(program, got, want):
        return f"sim ({program.policy}): {wrong}"
    return ""


def _compare(program: FuzzProgram, got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> str:
    for tensor in (*program.inputs, *program.outputs):
        a, b = (np.asarray(x[tensor.name], np.float64) for x in (got, want))
        wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if wrong.any():
            first = tuple(map(int, np.argwhere(wrong)[0]))
            return f"{tensor.name}{list(first)} is {a[first]}, not {b[first]} ({int(wrong.sum())} of {a.size} wrong)"
    return ""


def outcome(program: FuzzProgram, verified: bool = True) -> tuple[str, str]:
    """("agrees" | "refused" | "differs", text)."""
    try:
        wrong = differences(program, verified)
    except UserError as error:
        return "refused", error.render()
    return ("differs", wrong) if wrong else ("agrees", "")


def run_text(text: str, arch: str = "sm_90a", policies: tuple[str, ...] = ("rr", "random")) -> str:
    """A program's text on random integers, the device against the cpu target; "" when nothing is wrong."""
    func = trace(text)
    rng = np.random.default_rng(0)
    types = [(tuple(int(n) for n in p.ty.shape), NUMPY[str(p.ty.dtype.dtype)]) for p in func.params]
    given = [rng.integers(-3, 4, shape).astype(dtype) for shape, dtype in types]
    want = [x.copy() for x in given]
    build_cpu(func, poison=True)(*want)
    program = Program(lower(func, ARCHS[arch]))
    for policy in policies:
        got = [x.copy() for x in given]
        reports, _ = program.run(got, policy=policy)
        if reports:
            return "\n".join(map(str, reports))
        for p, a, b in zip(func.params, got, want):
            if not np.array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")):
                return f"{p.name} differs under {policy}"
    return ""
