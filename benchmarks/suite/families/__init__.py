# SPDX-License-Identifier: Apache-2.0
"""The families: a name and what makes its cases on a machine. A module holds kernels of one kind with their peers."""

from __future__ import annotations

from collections.abc import Callable

from ..contest import Case, Machine
from . import attention, gemm, host, memory, moe, quantized, sequence

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Callable[[Machine], list[Case]]] = {
    "gemm": gemm.dense,
    "decode_gemm": gemm.decode,
    "gemm_fp8": gemm.float8,
    "attention": attention.forward,
    "headline": attention.headline,
    "attention_gqa": attention.grouped,
    "attention_fp8": attention.float8,
    "attention_backward": attention.backward,
    "attention_decode": attention.decode,
    "mla": sequence.latent,
    "block_sparse": sequence.block_sparse,
    "linear_attention": sequence.linear,
    "mamba": sequence.mamba,
    "dequant": quantized.w4a16,
    "dequant_fp4": quantized.mxfp4,
    "moe": moe.fused,
    "norm": memory.norms,
    "softmax": memory.softmax,
    "elementwise": memory.elementwise,
    "cast": memory.cast,
    "ragged": gemm.ragged,
    "repeat": attention.repeat,
    "launch": host.launch,
    "compile": host.cold_compile,
}
