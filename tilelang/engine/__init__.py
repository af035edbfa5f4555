# SPDX-License-Identifier: Apache-2.0
"""Public import path of lowering and of hooks on the generated text; the code stands in `tilelang.jit`."""

from __future__ import annotations

from tilelang.jit.inspect import CompiledArtifact, lower
from tilelang.jit.postproc import register_c_postproc, register_cuda_postproc, register_cuda_postproc_callback
from tilelang.runtime.signature import KernelParam

__all__ = [
    "CompiledArtifact",
    "KernelParam",
    "lower",
    "register_c_postproc",
    "register_cuda_postproc",
    "register_cuda_postproc_callback",
]
