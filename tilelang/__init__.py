# SPDX-License-Identifier: Apache-2.0
"""tilelang: a tile-level language for fast GPU kernels.

Importing the package loads neither TVM nor torch and looks for no device: names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilelang.support import import_paths

__version__ = "0.1.0"

import_paths.install()

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
    "is_cache_enabled": "tilelang.jit.cache",
    "lower": "tilelang.jit.inspect",
    "next_power_of_2": "tilelang.support.integers",
    "par_compile": "tilelang.jit",
    "set_log_level": "tilelang.support.logs",
}
# Names that programs also take from here; they belong to the modules on the right.
_ALSO_HERE = {
    "Fragment": "tilelang.layout",
    "GemmWarpPolicy": "tilelang.language",
    "Layout": "tilelang.layout",
    "Profiler": "tilelang.profiler",
    "cached": "tilelang.cache",
    "register_cuda_postproc": "tilelang.engine",
    "register_cuda_postproc_callback": "tilelang.engine",
}
_MODULES = frozenset(
    {
        "analysis",
        "autotuner",
        "cache",
        "carver",
        "cli",
        "codegen",
        "contrib",
        "engine",
        "env",
        "flash_attention",
        "intrinsics",
        "ir",
        "jit",
        "language",
        "layout",
        "math",
        "profiler",
        "quantize",
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

_INSTEAD = {
    "lazy_jit": "tilelang.jit tells the styles apart",
    "register_c_postproc": "no C text is made; register_cuda_postproc is for CUDA text",
}

__all__ = [*sorted(_NAMES), "__version__", "env", "jit", "language", "profiler", "testing", "tools", "tvm"]

if TYPE_CHECKING:
    import tvm

    from tilelang import env, language, profiler, testing, tools
    from tilelang.autotuner import autotune
    from tilelang.jit import JITImpl, JITKernel, PassConfigKey, compile, jit, par_compile
    from tilelang.jit.cache import disable_cache, enable_cache, is_cache_enabled
    from tilelang.jit.inspect import lower
    from tilelang.profiler import TensorSupplyType
    from tilelang.support.errors import PerformanceWarning
    from tilelang.support.integers import cdiv, next_power_of_2
    from tilelang.support.logs import set_log_level


def __getattr__(name: str) -> Any:
    if name == "tvm":
        return importlib.import_module("tvm")
    home = _NAMES.get(name) or _ALSO_HERE.get(name)
    if home is not None:
        value = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"tilelang.{name}")
    if name in _INSTEAD:
        raise AttributeError(f"module 'tilelang' has no attribute {name!r}: {_INSTEAD[name]}")
    if import_paths.stands_for_another(f"tilelang.{name}"):
        return importlib.import_module(f"tilelang.{name}")
    raise AttributeError(f"module 'tilelang' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
