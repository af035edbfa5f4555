# SPDX-License-Identifier: Apache-2.0
"""Matrix products: 16 bit with B in both layouts, few rows (decode), float8, and sizes that no tile divides."""

from __future__ import annotations

from typing import Any

import torch

from ..contest import PUBLIC, Case, Machine, Prepare, Setup
from ..examples import example
from ..protocol import Rotating

__all__ = ["decode", "dense", "float8", "ragged"]

LIMIT = 4e-3  # rounding the output to bfloat16 costs 1.7e-3
FLOAT8_LIMIT = 1e-2  # sums of the tensor cores hold fewer bits than float32
L2_BYTES = 128 << 20  # weights that rotate exceed this together

SIZES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024), (4096, 4096, 14336), (4096, 6144, 4096),
    (4096, 28672, 4096), (8192, 10240, 8192), (2048, 8192, 8192), (1024, 8192, 8192), (512, 8192, 8192),
    (512, 4096, 4096), (256, 8192, 8192), (128, 8192, 8192), (128, 28672, 4096), (8192, 8192, 2048),
    (8192, 8192, 512), (16384, 4096, 256),
)  # fmt: skip
BOTH_LAYOUTS = SIZES[:4]
DECODE_SIZES = (
    (8192, 8192, (1, 16, 32, 64, 128)), (4096, 4096, (1, 16)), (28672, 4096, (16, 64)), (4096, 14336, (16,)),
    (6144, 4096, (16,)), (10240, 8192, (16,)),
)  # fmt: skip
FLOAT8_SIZES = (
    (8192, 8192, 8192), (4096, 4096, 4096), (4096, 28672, 4096), (4096, 4096, 14336), (512, 8192, 8192),
    (8192, 8192, 512), (8192, 8192, 1024),
)  # fmt: skip


def dense(machine: Machine) -> list[Case]:
    """bfloat16 products, B stored (N, K), the first ones (K, N) as well, and one in float16."""
    sizes = machine.pick(SIZES, [(128, 256, 128)])
    both = machine.pick(BOTH_LAYOUTS, sizes)
    cases = [_case(machine, size, transposed) for size in sizes for transposed in (True, False)[: 1 + (size in both)]]
    return [*cases, _case(machine, sizes[0], True, "float16")]


def ragged(machine: Machine) -> list[Case]:
    """Sizes that no tile divides."""
    sizes = machine.pick([(1000, 1000, 520), (4096, 1000, 520), (1, 4096, 4096)], [(100, 72, 40)])
    return [_case(machine, size, True) for size in sizes]


def _case(machine: Machine, size: tuple[int, int, int], transposed: bool, dtype: str = "bfloat16") -> Case:
    m, n, k = size

    def setup() -> Setup:
        kind = getattr(torch, dtype)
        a = machine.randn(m, k, dtype=kind)
        b = machine.randn(*((n, k) if transposed else (k, n)), dtype=kind)
        logical = b.T if transposed else b
        calls: dict[str, Prepare] = {
            "tilelang": lambda: _ours((*size, dtype, False, transposed), a, b),
            "cublas": lambda: lambda: a @ logical,
            "triton": lambda: _triton(a, b, transposed, block_k=64),
        }
        arguments = {"M": m, "N": n, "K": k, "dtype": dtype, "transpose_B": transposed, "out_dtype": dtype}
        calls |= machine.public("gemm", "matmul", arguments, a, b)
        return Setup(a.float() @ logical.float(), calls, LIMIT)

    name = f"gemm {'bf16' if dtype == 'bfloat16' else 'f16'} {m}x{n}x{k} {'NT' if transposed else 'NN'}"
    return Case(name, setup, 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n))


def _ours(problem: tuple[Any, ...], a: torch.Tensor, b: torch.Tensor) -> Any:
    kernel = example("gemm", "example_gemm").matmul(*problem)
    return lambda: kernel(a, b)


def _triton(a: torch.Tensor, b: torch.Tensor, transposed: bool, block_k: int, out: torch.dtype | None = None) -> Any:
    from .. import triton_peers

    return triton_peers.matmul(a, b, transposed, block_k, out or a.dtype)


def decode(machine: Machine) -> list[Case]:
    """Few rows: bound by reading the weights once. Weights rotate, so that none is found in L2."""
    sizes = machine.pick(DECODE_SIZES, [(256, 256, (1, 16))])
    return [_decode_case(machine, m, n, k) for n, k, rows in sizes for m in rows]


def _decode_case(machine: Machine, m: int, n: int, k: int) -> Case:
    def setup() -> Setup:
        copies = 2 if machine.small else max(2, -(-2 * L2_BYTES // (2 * n * k)))
        x = machine.randn(m, k)
        weights = [machine.randn(n, k) for _ in range(copies)]
        calls: dict[str, Prepare] = {
            "tilelang": lambda: [_ours_kernel(m, n, k, x, w) for w in weights],
            "cublas": lambda: [lambda w=w: x @ w.T for w in weights],
            "triton": lambda: _triton_skinny(x, weights),
        }
        if m == 1:
            calls["tilelang gemv"] = lambda: _gemv(n, k, x, weights)
        arguments, others = {"M": m, "N": n, "K": k, "dtype": "bfloat16"}, [(x, w) for w in weights[1:]]
        calls |= machine.public("gemm", "matmul_few_rows", arguments, x, weights[0], others=others)
        return Setup(x.float() @ weights[0].float().T, calls, LIMIT, clock=Rotating())

    moved = 2.0 * (m * k + n * k + m * n)
    return Case(f"decode bf16 {m}x{n}x{k}", setup, 0.0, moved, "rows M", m, f"N={n} K={k}")


def _ours_kernel(m: int, n: int, k: int, x: torch.Tensor, w: torch.Tensor) -> Any:
    kernel = example("gemm", "example_gemm").matmul(m, n, k, "bfloat16", False, True)
    return lambda: kernel(x, w)


def _gemv(n: int, k: int, x: torch.Tensor, weights: list[torch.Tensor]) -> list[Any]:
    kernel = example("gemv", "example_gemv").gemv(n, k, dtype="bfloat16")
    vector = x.reshape(k)
    return [lambda w=w: kernel(w, vector).reshape(1, n) for w in weights]


def _triton_skinny(x: torch.Tensor, weights: list[torch.Tensor]) -> list[Any]:
    from .. import triton_peers

    return [triton_peers.skinny(x, w) for w in weights]


def float8(machine: Machine) -> list[Case]:
    """float8 e4m3 products with B stored (N, K), output bfloat16; `two levels` adds blocks of K in float32."""
    return [_float8_case(machine, *size) for size in machine.pick(FLOAT8_SIZES, [(128, 128, 256)])]


def _float8_case(machine: Machine, m: int, n: int, k: int) -> Case:
    def setup() -> Setup:
        a, b = (machine.randn(*shape, dtype=torch.float8_e4m3fn) for shape in ((m, k), (n, k)))

        def ours(two_level: bool) -> Any:
            kernel = example("gemm", "example_gemm_fp8").matmul_fp8(m, n, k, out_dtype="bfloat16", two_level=two_level)
            return lambda: kernel(a, b)

        def cublas(fast: bool) -> Any:
            one = torch.ones((), device=machine.device)
            kinds = {"out_dtype": torch.bfloat16, "use_fast_accum": fast}
            return lambda: torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, **kinds)

        calls: dict[str, Prepare] = {
            "tilelang": lambda: ours(False),
            "tilelang two levels": lambda: ours(True),
            "cublas fast": lambda: cublas(True),
            "cublas": lambda: cublas(False),
            "triton": lambda: _triton(a, b, True, block_k=128, out=torch.bfloat16),
        }
        arguments = {"M": m, "N": n, "K": k, "dtype": "float8_e4m3fn", "out_dtype": "bfloat16"}
        calls |= machine.public("gemm", "matmul", {**arguments, "transpose_B": True}, a, b)
        calls |= machine.public("gemm", "matmul_two_levels", arguments, a, b, label=f"{PUBLIC} two levels")
        return Setup(a.float() @ b.float().T, calls, FLOAT8_LIMIT)

    return Case(f"gemm e4m3 {m}x{n}x{k}", setup, 2.0 * m * n * k, m * k + n * k + 2.0 * m * n)
