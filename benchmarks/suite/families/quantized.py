# SPDX-License-Identifier: Apache-2.0
"""Products with 4-bit weights, integers and floats, beside cuBLAS on 16-bit weights and torch's int4 kernel."""

from __future__ import annotations

from typing import Any

import torch

from ..contest import Case, Machine, Prepare, Setup
from ..examples import example

__all__ = ["mxfp4", "w4a16"]

GROUP = 128
LIMIT, BF16_LIMIT = 2e-3, 1.5e-2


def w4a16(machine: Machine) -> list[Case]:
    """float16 activations times 4-bit weights with a scale and a zero point for every 128, M rows."""
    n, k = (256, 256) if machine.small else (8192, 8192)
    return [_case(machine, m, n, k) for m in machine.pick((1, 16, 64, 128, 4096), (1, 16))]


def _case(machine: Machine, m: int, n: int, k: int) -> Case:
    module = example("dequantize_gemm", "example_dequant_gemm_w4a16")

    def setup() -> Setup:
        inputs = module.make_inputs(m, n, k, GROUP, machine.device)
        a, packed, scales, zeros = inputs
        weights = module.dequantize(packed, scales, zeros)
        half = weights.half()

        def ours(factory: Any) -> Any:
            kernel = factory(m, n, k, GROUP)
            return lambda: kernel(*inputs)

        calls: dict[str, Prepare] = {"tilelang": lambda: ours(module.matmul_w4a16)}
        if m <= 16:
            calls["tilelang gemv"] = lambda: ours(module.gemv_w4a16)
        calls["cublas f16"] = lambda: lambda: a @ half.T
        calls["torch int4"] = lambda: _torch_int4(a, packed, scales, zeros)
        calls |= machine.public("dequant", "matmul_w4a16", {"M": m, "N": n, "K": k, "group": GROUP}, *inputs)
        return Setup(a.double() @ weights.T, calls, LIMIT, {"torch int4": BF16_LIMIT, "cublas f16": BF16_LIMIT})

    return Case(f"w4a16 {m}x{n}x{k}", setup, 2.0 * m * n * k, n * k / 2 + 2.0 * m * (n + k), "rows M", m, f"N={n}")


def mxfp4(machine: Machine) -> list[Case]:
    """bfloat16 activations times 4-bit floats with a power of two for every 32, M rows."""
    n, k = (256, 256) if machine.small else (8192, 8192)
    return [_mxfp4(machine, m, n, k) for m in machine.pick((1, 16, 64, 128, 4096), (1, 16))]


def _mxfp4(machine: Machine, m: int, n: int, k: int) -> Case:
    module = example("dequantize_gemm", "example_dequant_gemm_fp4")

    def setup() -> Setup:
        inputs = module.make_inputs(m, n, k, machine.device)
        a, packed, scales = inputs
        weights = module.dequantize(packed, scales)
        wide = weights.bfloat16()

        def ours(factory: Any) -> Any:
            kernel = factory(m, n, k)
            return lambda: kernel(*inputs)

        calls: dict[str, Prepare] = {"tilelang": lambda: ours(module.matmul_fp4)}
        if m <= 16:
            calls["tilelang gemv"] = lambda: ours(module.gemv_fp4)
        calls["cublas bf16"] = lambda: lambda: a @ wide.T
        return Setup(a.double() @ weights.T, calls, BF16_LIMIT)

    return Case(f"mxfp4 {m}x{n}x{k}", setup, 2.0 * m * n * k, n * k / 2 + 2.0 * m * (n + k), "rows M", m, f"N={n}")


def _torch_int4(a: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> Any:
    """It computes (q - 8) * scale + offset in bfloat16, with the high half of a byte in the even column."""
    low = a.bfloat16()
    swapped = (packed << 4) | (packed >> 4)
    weights = torch._convert_weight_to_int4pack(swapped, 8)
    offsets = (8 - zeros.float()) * scales.float()
    pairs = torch.stack([scales.float(), offsets], dim=-1).transpose(0, 1).contiguous().bfloat16()
    return lambda: torch._weight_int4pack_mm(low, weights, GROUP, pairs)
