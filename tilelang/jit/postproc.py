# SPDX-License-Identifier: Apache-2.0
"""A hook of the program's own on CUDA text, in front of the CUDA compiler: for a look at it, or a change by hand.

While one is registered, kernels are compiled anew each time and kept in no cache: what a hook does has no key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.target.arch import Target

__all__ = [
    "cuda_hook",
    "postprocessed",
    "register_c_postproc",
    "register_cuda_postproc",
    "register_cuda_postproc_callback",
]

Hook = Callable[[str, Target], str]

_hook: Hook | None = None


def cuda_hook() -> Hook | None:
    """The registered hook, or None."""
    return _hook


def postprocessed(text: str, target: Target) -> str:
    """The text that is compiled: what the hook makes of it, if there is one. Raises `TypeError` for a hook that gives
    no text."""
    if _hook is None:
        return text
    made = _hook(text, target)
    if not isinstance(made, str):
        raise TypeError(f"a hook on CUDA text returns the text to compile, got {type(made).__name__}")
    return made


def register_cuda_postproc(func: Hook | None, override: bool = True) -> None:
    """`func(text, target)` gives the CUDA text that is compiled; None takes the hook away. Raises `ValueError` where
    there is one already and `override` is False, `TypeError` for what cannot be called."""
    global _hook
    if func is not None and not callable(func):
        raise TypeError(f"a hook is a function of (text, target), got {type(func).__name__}")
    if _hook is not None and not override:
        raise ValueError("there is a hook on CUDA text already; override=True replaces it")
    _hook = func


def register_cuda_postproc_callback(func: Any = None, override: bool = True) -> Any:
    """The same as a decorator, bare or with arguments."""
    if func is None or isinstance(func, bool):
        return lambda f: register_cuda_postproc_callback(f, override if func is None else func)
    register_cuda_postproc(func, override)
    return func


def register_c_postproc(func: Any, override: bool = True) -> None:
    """Refused: no C text is made. Raises `ValueError`."""
    raise ValueError("no C text is made: the cpu target is LLVM IR; register_cuda_postproc is for CUDA text")
