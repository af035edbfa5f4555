# SPDX-License-Identifier: Apache-2.0
"""Public import path of the kernel cache; the code stands in `tilelang.jit`."""

from __future__ import annotations

from tilelang.jit.cache import disable_cache, enable_cache, is_cache_enabled
from tilelang.jit.cache import remove_kernels as _remove_kernels
from tilelang.jit.driver import clear_memory_cache as _clear_memory_cache
from tilelang.jit.driver import compile as cached

__all__ = ["cached", "clear_cache", "disable_cache", "enable_cache", "is_cache_enabled"]


def clear_cache() -> None:
    """Forgets all compiled kernels of this version, in memory and on disk. What an autotuner found stays."""
    _clear_memory_cache()
    _remove_kernels()
