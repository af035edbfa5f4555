# SPDX-License-Identifier: Apache-2.0
"""Scripts are made smaller as long as they fail in the same way."""

from __future__ import annotations

import pytest

from tilelang.tools import minimize
from tilelang.tools.autodd import runs_into


def fails_with(kind):
    def is_failing(source):
        try:
            exec(compile(source, "candidate", "exec"), {})
        except Exception as error:
            return type(error).__name__ == kind
        return False

    return is_failing


PROGRAM = """
import math
def other(x):
    return x + 1
def failing(a, b):
    total = 0
    for i in range(4):
        if i > 1:
            with open("/dev/null"):
                total += a / (b - b) + math.sqrt(4)
        else:
            total += other(i)
    return total
values = [1, 2, 3]
print(failing(values[0], 7))  # the failing call
print(other(3))
"""


def test_only_what_fails_is_left():
    small = minimize(PROGRAM, fails_with("ZeroDivisionError"))
    assert fails_with("ZeroDivisionError")(small)
    assert len(small.splitlines()) <= 3 and "other" not in small and "import" not in small


def test_the_kind_of_failure_stays():
    source = "x = 1 / 1\ny = [][3]\nz = 1 / 0\n"
    assert minimize(source, fails_with("IndexError")).strip() in ("[][3]", "[][1]", "y = [][1]")
    assert minimize("def f():\n    return 5 // 0\nf()\n", fails_with("ZeroDivisionError")).strip()


def test_a_program_that_does_not_fail():
    with pytest.raises(ValueError, match="nothing to make smaller"):
        minimize("x = 1\n", fails_with("ZeroDivisionError"))


def test_every_run_is_of_a_new_program():
    seen = []

    def is_failing(source):
        seen.append(source)
        return "boom" in source

    assert minimize("a = 1\nb = 2\nboom = 3\nc = 4\n", is_failing).strip() == "boom = 1"
    assert len(seen) == len(set(seen))


def test_scripts_run_as_processes():
    source = "import sys\nx = 3\nassert len(sys.argv) == 1, 'too many ' + 'of them'\n"
    assert "too many" in minimize(source, runs_into("too many of them", ["argument"]))
    assert not runs_into("too many of them")(source)
    assert not runs_into("something else", ["argument"])(source)


def test_a_program_that_hangs():
    assert runs_into("timeout", seconds=0.3)("import time\ntime.sleep(30)\n")
    assert not runs_into("other", seconds=0.3)("import time\ntime.sleep(30)\n")


KERNEL = """
import tilelang
import tilelang.language as T

BLOCK = 64

def unused(x):
    return x * 2

@T.prim_func
def main(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((128, 64), "float16")):
    with T.Kernel(2, threads=128) as b:
        S = T.alloc_shared((BLOCK, 64), "float16")
        R = T.alloc_shared((64, 32), "float16")
        acc = T.alloc_fragment((BLOCK, 64), "float32")
        T.clear(acc)
        T.copy(A[b * BLOCK, 0], S)
        for k in T.serial(1):
            T.gemm(S, R, acc)
        T.copy(acc, C[b * BLOCK, 0])

tilelang.compile(main, target="cpu")
"""


def test_a_kernel_that_is_refused(tmp_path):
    """In this process, as a new one for each candidate takes seconds."""
    path = tmp_path / "kernel.py"

    def is_failing(source):
        path.write_text(source)
        import linecache

        linecache.clearcache()
        try:
            exec(compile(source, str(path), "exec"), {"__name__": "candidate", "__file__": str(path)})
        except Exception as error:
            return "N shape check failed" in str(error) or "gemm N" in str(error)
        return False

    small = minimize(KERNEL, is_failing)
    assert "T.gemm" in small and "unused" not in small and "T.clear" not in small and "T.serial" not in small
