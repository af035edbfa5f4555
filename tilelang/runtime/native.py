# SPDX-License-Identifier: Apache-2.0
"""The native launcher library, loaded when a CUDA kernel is first called."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

__all__ = ["LIBRARY", "make_kernel", "make_timer", "native_function"]

LIBRARY = Path(__file__).with_name("libtilelang_runtime.so")


@functools.cache
def native_function(name: str) -> Any:
    """A function that the library registers. Raises `RuntimeError` where the library was not built."""
    import tvm_ffi

    if not LIBRARY.exists():
        raise RuntimeError(
            f"the native launcher {LIBRARY.name} is not built; install the package (pip install -e .), "
            "which needs CMake and a C++17 compiler"
        )
    tvm_ffi.load_module(str(LIBRARY))
    return tvm_ffi.get_global_func(name)


def make_kernel(cubin: bytes, plan_json: str) -> tuple[Any, Any]:
    """Two callables: one takes all arguments of the plan's signature, one the inputs and returns the outputs
    (a tensor, or a sequence of several), which needs a tensor among the inputs."""
    with_all, with_inputs = native_function("tilelang.runtime.make_kernel")(cubin, plan_json)
    return with_all, with_inputs


def make_timer(device: int = 0) -> Any:
    """`timer("start", stream)`, `timer("stop", stream)`, then `timer("elapsed", 0)` in ms; `stream` is a raw handle."""
    return native_function("tilelang.runtime.make_timer")(device)
