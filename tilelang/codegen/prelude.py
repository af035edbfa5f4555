# SPDX-License-Identifier: Apache-2.0
"""The header of a kernel text: our own, assembled from `headers/` by what the text uses.

TVM's header costs NVRTC seconds (it pulls in cuda/std). Only the types and functions that TVM's printer may name are
defined here; a name that is missing makes the text fail to compile, never compute something else.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["prelude_for"]


@cache
def _header(name: str) -> str:
    text = (files("tilelang.codegen") / "headers" / name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//")) + "\n"


def prelude_for(body: str) -> str:
    """The header text for a kernel text."""
    fp8 = "__nv_fp8" in body or "fp8_e" in body
    bf16 = fp8 or "bfloat16" in body
    fp16 = fp8 or "half" in body
    parts = [_header("prelude.cuh")]
    if fp8:
        parts.append("#define TL_FLOAT8\n#include <cuda_fp8.h>\n")
    if fp16:
        parts.append("#include <cuda_fp16.h>\n")
    if bf16:
        parts.append("#include <cuda_bf16.h>\n")
    if fp16 or bf16:
        parts.append(_header("vector4.cuh"))
    headers = {"float16.cuh": fp16, "bfloat16.cuh": bf16, "float8.cuh": fp8, "exponent8.cuh": "fp8_e8" in body}
    parts.extend(_header(name) for name, used in headers.items() if used)
    return "".join(parts)
