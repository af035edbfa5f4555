# SPDX-License-Identifier: Apache-2.0
"""The environment variables, as `tilelang.env.cache_dir.get()` or as `tilelang.env.TILELANG_CACHE_DIR`, their value.

Values are read when they are asked for. The table is in `tilelang.support.env`.
"""

from __future__ import annotations

from typing import Any

from tilelang.jit.cache import disable_cache, enable_cache, is_cache_enabled
from tilelang.support.env import env

__all__ = ["disable_cache", "enable_cache", "env", "is_cache_enabled"]


def __getattr__(name: str) -> Any:
    variables = {n: v for v in env.all().values() for n in (v.name, v.also) if n}
    if name in variables:
        return variables[name].get()
    if hasattr(type(env), name):
        return getattr(env, name)
    raise AttributeError(f"tilelang reads no environment variable {name}; `tilelang env` lists them")


def __dir__() -> list[str]:
    return sorted({*__all__, *env.all(), *(n for n in dir(env) if not n.startswith("_"))})
