# SPDX-License-Identifier: Apache-2.0
"""Kernels that are bound by memory, beside a copy of as many bytes: norms, softmax, elementwise, transpose, casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..contest import Case, Machine, Prepare, Setup
from ..examples import example

__all__ = ["cast", "elementwise", "norms", "softmax"]

SQUARE = (8192, 8192)
SMALL = (64, 256)
RING_ABOVE = 16384  # columns: longer rows fill a processor
COMPILED_AT = (8192, 8192)  # torch.compile takes seconds: one shape says it


def _triton(name: str, *arguments: Any) -> Any:
    from .. import triton_peers

    return getattr(triton_peers, name)(*arguments)


def _copy(moved: float, machine: Machine) -> Prepare:
    """A copy that reads and writes `moved` bytes together."""

    def prepare() -> Any:
        source = torch.empty(int(moved // 2), dtype=torch.uint8, device=machine.device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    return prepare


def _compiled(function: Callable[..., torch.Tensor], *arguments: Any) -> Any:
    call = torch.compile(function, dynamic=False)
    return lambda: call(*arguments)


def _setup(
    machine: Machine, want: Any, calls: dict[str, Prepare], limit: float, moved: float, limits: dict[str, float]
) -> Setup:
    return Setup(want, calls, limit, limits, {"ceiling copy": _copy(moved, machine)})


def norms(machine: Machine) -> list[Case]:
    """RMSNorm and LayerNorm of rows."""
    sizes = machine.pick([SQUARE, (8192, 4096), (32768, 1024), (4096, 16384)], [SMALL])
    kinds = [("rms", "bfloat16"), ("layer", "bfloat16")]
    return [_norm(machine, m, n, kind, dtype) for m, n in sizes for kind, dtype in kinds] + [
        _norm(machine, *machine.pick([SQUARE], [SMALL])[0], "rms", "float32")
    ]


def _norm(machine: Machine, m: int, n: int, kind: str, dtype: str) -> Case:
    moved = 2.0 * m * n * getattr(torch, dtype).itemsize

    def setup() -> Setup:
        module = example("norm", "example_norm")
        x = (machine.randn(m, n, dtype=torch.float32) + machine.randn(m, 1, dtype=torch.float32)).to(
            getattr(torch, dtype)
        )
        weight, bias = (machine.randn(n, dtype=getattr(torch, dtype)) for _ in range(2))
        functional = torch.nn.functional
        given = (x, weight) if kind == "rms" else (x, weight, bias)

        def by_torch(*values: torch.Tensor) -> torch.Tensor:
            if kind == "rms":
                return functional.rms_norm(values[0], (n,), values[1], 1e-5)
            return functional.layer_norm(values[0], (n,), values[1], values[2], 1e-5)

        def ours() -> Any:
            kernel = (module.rms_norm if kind == "rms" else module.layer_norm)(m, n, dtype=dtype)
            return lambda: kernel(*given)

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "triton": lambda: _triton(f"{kind}_norm", *given),
            "torch": lambda: lambda: by_torch(*given),
        }
        if (m, n) == COMPILED_AT:
            calls["torch compiled"] = lambda: _compiled(by_torch, *given)
        calls |= machine.public("rows", f"{kind}_norm", {"M": m, "N": n, "eps": 1e-5, "dtype": dtype}, *given)
        want = by_torch(*(v.float() for v in given))
        return _setup(machine, want, calls, 4e-3 if dtype == "bfloat16" else 1e-5, moved, {})

    return Case(f"{kind}norm {_short(dtype)} {m}x{n}", setup, 0.0, moved, "columns", n, f"{kind}norm {_short(dtype)}")


def softmax(machine: Machine) -> list[Case]:
    """Softmax of rows."""
    return [_softmax(machine, m, n) for m, n in machine.pick([SQUARE, (32768, 2048), (4096, 32768)], [SMALL])]


def _softmax(machine: Machine, m: int, n: int) -> Case:
    moved = 4.0 * m * n

    def setup() -> Setup:
        module = example("softmax", "example_softmax")
        x = machine.randn(m, n) * 4

        def ours(factory: Any) -> Any:
            kernel = factory(m, n, dtype="bfloat16")
            return lambda: kernel(x)

        calls: dict[str, Prepare] = {
            "tilelang": lambda: ours(module.softmax if n <= RING_ABOVE else module.softmax_ring),
            "tilelang online": lambda: ours(module.softmax_online),
            "triton": lambda: _triton("softmax", x),
            "torch": lambda: lambda: x.softmax(dim=1),
        }
        if (m, n) == COMPILED_AT:
            calls["torch compiled"] = lambda: _compiled(lambda t: t.softmax(dim=1), x)
        calls |= machine.public("rows", "softmax", {"M": m, "N": n, "dtype": "bfloat16"}, x)
        return _setup(machine, x.float().softmax(dim=1), calls, 4e-3, moved, {})

    return Case(f"softmax bf16 {m}x{n}", setup, 0.0, moved, "columns", n, "softmax bf16")


def elementwise(machine: Machine) -> list[Case]:
    """Sums in two types, a gated activation, and a transpose."""
    m, n = machine.pick([SQUARE], [SMALL])[0]
    return [
        _add(machine, m, n, "float32"),
        _add(machine, m, n, "float16"),
        _silu(machine, m, n),
        *(_transpose(machine, *size) for size in machine.pick([SQUARE, (4096, 16384)], [SMALL])),
    ]


def _add(machine: Machine, m: int, n: int, dtype: str) -> Case:
    kind = getattr(torch, dtype)
    moved = 3.0 * m * n * kind.itemsize

    def setup() -> Setup:
        a, b = (machine.randn(m, n, dtype=kind) for _ in range(2))

        def ours() -> Any:
            kernel = example("elementwise", "example_elementwise").add(m, n, dtype)
            return lambda: kernel(a, b)

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "triton": lambda: _triton("add", a, b),
            "torch": lambda: lambda: a + b,
        }
        calls |= machine.public("elementwise", "add", {"M": m, "N": n, "dtype": dtype}, a, b)
        return _setup(machine, a.float() + b.float(), calls, 1e-3, moved, {})

    return Case(f"add {_short(dtype)} {m}x{n}", setup, 0.0, moved)


def _silu(machine: Machine, m: int, n: int) -> Case:
    moved = 3.0 * m * n * 2 / 2

    def setup() -> Setup:
        x = machine.randn(m, n, dtype=torch.float16)

        def by_torch(t: torch.Tensor) -> torch.Tensor:
            gate, up = t.chunk(2, dim=1)
            return torch.nn.functional.silu(gate) * up

        def ours() -> Any:
            function = example("elementwise", "example_elementwise").silu_and_mul
            return lambda: function(x)

        calls: dict[str, Prepare] = {"tilelang": ours, "torch": lambda: lambda: by_torch(x)}
        if (m, n) == COMPILED_AT:
            calls["torch compiled"] = lambda: _compiled(by_torch, x)
        return _setup(machine, by_torch(x.float()), calls, 2e-3, moved, {})

    return Case(f"silu and mul f16 {m}x{n}", setup, 0.0, moved)


def _transpose(machine: Machine, m: int, n: int) -> Case:
    moved = 4.0 * m * n

    def setup() -> Setup:
        x = machine.randn(m, n)

        def ours() -> Any:
            kernel = example("transpose", "example_transpose").transpose(m, n, "bfloat16")
            return lambda: kernel(x)

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "triton": lambda: _triton("transpose", x),
            "torch": lambda: lambda: x.T.contiguous(),
        }
        return _setup(machine, x.T, calls, 1e-9, moved, {})

    return Case(f"transpose bf16 {m}x{n}", setup, 0.0, moved)


def cast(machine: Machine) -> list[Case]:
    """Quantisation to float8 with a scale for every 128 elements of a row or of a square, and back."""
    m, n = machine.pick([SQUARE], [(256, 256)])[0]
    return [_quantize(machine, m, n, 1), _quantize(machine, m, n, 128), _back(machine, m, n)]


def _quantize(machine: Machine, m: int, n: int, rows: int) -> Case:
    moved = 3.0 * m * n

    def setup() -> Setup:
        module = example("cast", "example_cast_fp8")
        x = module.make_input(m, n, machine.device)
        quotients, scales = module.reference(x, 128, rows)

        def ours() -> Any:
            kernel = (module.cast_per_token if rows == 1 else module.cast_per_block)(m, n)
            assert_scaled(kernel(x))
            return lambda: kernel(x)

        def assert_scaled(got: tuple[torch.Tensor, torch.Tensor]) -> None:
            """Elements one rounding from the quotient, scales exact: what a relative error over both cannot say."""
            torch.testing.assert_close(got[1], scales, rtol=1e-6, atol=0.0)
            torch.testing.assert_close(got[0].float(), quotients, rtol=0.07, atol=2.0**-9)

        def by_torch(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            parts = t.float().unflatten(1, (-1, 128)).unflatten(0, (-1, rows))
            scale = parts.abs().amax(dim=(1, 3)).clamp(min=module.SMALLEST) / module.LARGEST
            y = (parts / scale[:, None, :, None]).clamp(-module.LARGEST, module.LARGEST)
            return y.flatten(2, 3).flatten(0, 1).to(torch.float8_e4m3fn), scale

        calls: dict[str, Prepare] = {"tilelang": ours}
        if rows == 1:
            calls["triton"] = lambda: _triton("quantize", x, module.SMALLEST, module.LARGEST)
        calls["torch"] = lambda: lambda: by_torch(x)
        if (m, n) == COMPILED_AT:
            calls["torch compiled"] = lambda: _compiled(by_torch, x)
        return _setup(machine, (quotients, scales), calls, 4e-2, moved, {})

    return Case(f"quantize e4m3 per {'token' if rows == 1 else 'block'} {m}x{n}", setup, 0.0, moved)


def _back(machine: Machine, m: int, n: int) -> Case:
    moved = 3.0 * m * n

    def setup() -> Setup:
        module = example("cast", "example_cast_fp8")
        y = machine.randn(m, n, dtype=torch.float8_e4m3fn)
        scales = machine.randn(m, n // 128, dtype=torch.float32)

        def by_torch(values: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
            return (values.float() * factors.repeat_interleave(128, dim=1)).bfloat16()

        def ours() -> Any:
            kernel = module.cast_back(m, n)
            return lambda: kernel(y, scales)

        calls: dict[str, Prepare] = {"tilelang": ours, "torch": lambda: lambda: by_torch(y, scales)}
        want = y.float() * scales.repeat_interleave(128, dim=1)
        return _setup(machine, want, calls, 4e-3, moved, {})

    return Case(f"cast back bf16 {m}x{n}", setup, 0.0, moved)


def _short(dtype: str) -> str:
    return {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}[dtype]
