# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels that the user wrote in CUDA."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.kernel import Kernel
from tilelang.language.options import call_extern
from tilelang.tir_builder.builder import Builder

__all__ = ["CUDASourceCodeKernel"]


class CUDASourceCodeKernel:
    """`T.CUDASourceCodeKernel(grid, threads=128, source_code_or_path=text, entry_name="scale")` in a T.prim_func.

    Launches the `__global__` function `entry_name` of a CUDA text (or of the file at a path) with all parameters of the
    program, in order: tensors as pointers, scalars by value. It may stand in a `with` of an empty body. Its shared
    memory is static. Only targets with CUDA run it.
    """

    def __init__(
        self,
        *grid: Any,
        threads: Any = None,
        source_code_or_path: str | Path,
        entry_name: str = "main_kernel",
        cluster_dims: Any = None,
    ) -> None:
        builder = Builder.current("CUDASourceCodeKernel")
        text = _text_of(source_code_or_path)
        if not re.search(rf"\b{re.escape(entry_name)}\s*\(", text):
            raise errors.BadChoice(
                what="entry_name", value=entry_name, choices="functions of the source", arg="entry_name"
            )
        function = f"tl_user_{entry_name}"
        known = builder.func_attrs.get(attrs.PRELUDE, "")
        if function not in known:
            builder.func_attrs[attrs.PRELUDE] = f"{known}{_as_function(text, entry_name, function)}\n"
        with Kernel(*grid, threads=threads, cluster_dims=cluster_dims):
            call = call_extern("void", function, *builder.params)
            builder.emit(tirx.Evaluate(call, span=builder.span))

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        return None


def _text_of(source: str | Path) -> str:
    """The text itself, or what the file at a path holds."""
    if isinstance(source, Path) or ("\n" not in source and source.endswith((".cu", ".cuh", ".h"))):
        return Path(source).read_text(encoding="utf-8")
    return source


def _as_function(text: str, entry_name: str, function: str) -> str:
    """The text with its kernels as device functions, which a kernel of ours calls; the entry gets another name."""
    text = re.sub(r"__launch_bounds__\s*\([^()]*\)", "", text)
    text = re.sub(r"\b__global__\b", "__device__", text)
    return re.sub(rf"\b{re.escape(entry_name)}\b", function, text)
