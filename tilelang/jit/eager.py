# SPDX-License-Identifier: Apache-2.0
"""The eager style: the decorated function is the kernel; tensors are bound at each call."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

__all__ = ["EagerFunction", "is_eager"]


def is_eager(func: Callable[..., Any]) -> bool:
    """Whether the function launches a kernel itself: its source has `with T.Kernel(...)`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(func)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("Kernel", "ClusterKernel", "const", "CUDASourceCodeKernel")
        for node in ast.walk(tree)
    )


class EagerFunction:
    """An eager function and its kernels."""

    def __init__(self, func: Callable[..., Any], options: Any) -> None:
        self.func = func
        self.options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the eager style is not available yet; return a T.prim_func from the function")

    compile = __call__
    get_tir = __call__
