# SPDX-License-Identifier: Apache-2.0
"""Specialise, compile, cache, call: the decorator, the compile driver and the kernel object.

`tilelang.jit` is a package and a decorator at once, hence this module can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tilelang.jit.decorator import JITImpl, jit
from tilelang.jit.driver import compile, par_compile
from tilelang.jit.kernel import JITKernel
from tilelang.jit.pass_config import PassConfigKey
from tilelang.jit.target import resolve_target

__all__ = [
    "JITImpl",
    "JITKernel",
    "PassConfigKey",
    "compile",
    "jit",
    "par_compile",
    "resolve_target",
]


class _CallableModule(ModuleType):
    """Importing any part of this package binds `tilelang.jit` to the module; users mean the decorator."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
