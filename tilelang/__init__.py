# SPDX-License-Identifier: Apache-2.0
"""tilelang: a tile-level language for fast GPU kernels.

Importing the package loads neither TVM nor torch and looks for no device: names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module that defines it.
_NAMES = {
    "JITImpl": "tilelang.jit",
    "JITKernel": "tilelang.jit",
    "PassConfigKey": "tilelang.jit",
    "PerformanceWarning": "tilelang.support.errors",
    "TensorSupplyType": "tilelang.profiler",
    "autotune": "tilelang.autotuner",
    "cdiv": "tilelang.support.integers",
    "compile": "tilelang.jit",
    "disable_cache": "tilelang.jit.cache",
    "enable_cache": "tilelang.jit.cache",
    "env": "tilelang.support.env",
    "is_cache_enabled": "tilelang.jit.cache",
    "lower": "tilelang.jit.inspect",
    "next_power_of_2": "tilelang.support.integers",
    "par_compile": "tilelang.jit",
    "set_log_level": "tilelang.support.logs",
}
_MODULES = frozenset(
    {
        "analysis",
        "autotuner",
        "carver",
        "cli",
        "codegen",
        "contrib",
        "flash_attention",
        "ir",
        "jit",
        "language",
        "layout",
        "profiler",
        "relax",
        "runtime",
        "sim",
        "support",
        "target",
        "testing",
        "tir_builder",
        "tools",
        "transform",
        "utils",
    }
)

__all__ = [*sorted(_NAMES), "__version__", "jit", "language", "profiler", "testing", "tools", "tvm"]

if TYPE_CHECKING:
    import tvm

    from tilelang import language, profiler, testing, tools
    from tilelang.autotuner import autotune
    from tilelang.jit import JITImpl, JITKernel, PassConfigKey, compile, jit, par_compile
    from tilelang.jit.cache import disable_cache, enable_cache, is_cache_enabled
    from tilelang.jit.inspect import lower
    from tilelang.profiler import TensorSupplyType
    from tilelang.support.env import env
    from tilelang.support.errors import PerformanceWarning
    from tilelang.support.integers import cdiv, next_power_of_2
    from tilelang.support.logs import set_log_level


def __getattr__(name: str) -> Any:
    if name == "tvm":
        return importlib.import_module("tvm")
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"tilelang.{name}")
    raise AttributeError(f"module 'tilelang' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
