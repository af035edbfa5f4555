# SPDX-License-Identifier: Apache-2.0
"""Runs kernels for the commands: on random inputs, timed, or against another target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["compare", "run_kernel"]


def run_kernel(kernel: Any, values: Mapping[str, Any]) -> Iterator[str]:
    """Call a kernel on random inputs, with these values of symbols and scalars, and time it; one line an output, then
    the latency.
    """
    import tilelang

    inputs = list(kernel.get_profiler().get_inputs(values))
    for n, output in enumerate(_outputs(kernel, inputs)):
        finite = int(output.isfinite().sum()) if output.is_floating_point() else output.numel()
        mean = output.double().mean().item() if output.numel() else 0.0
        kind = str(output.dtype).removeprefix("torch.")
        yield f"output {n}: {tuple(output.shape)} {kind}, {finite} of {output.numel()} finite, mean {mean:.6g}"
    ms = tilelang.profiler.do_bench(lambda: kernel(*inputs), warmup=3, rep=12, return_mode="median")
    yield f"{ms:.4f} ms on {kernel.target}"


def compare(
    expected: Any, tested: Any, values: Mapping[str, Any], rtol: float = 1e-2, atol: float = 1e-2
) -> tuple[bool, list[str]]:
    """Run two kernels of one program on the same random inputs; whether they agree, and a line an output."""
    import torch

    from tilelang.profiler.supply import copied

    inputs = [copied(x, "cpu") for x in expected.get_profiler().get_inputs(values)]
    moved = [copied(x, "cuda" if tested.target.kind == "cuda" else "cpu") for x in inputs]
    want, got = _outputs(expected, inputs), [x.cpu() for x in _outputs(tested, moved)]
    # What the program writes in place counts as well.
    pairs = [
        *zip(want, got, strict=True),
        *zip(inputs, (x.cpu() if hasattr(x, "cpu") else x for x in moved), strict=True),
    ]
    lines, agree = [], True
    for n, (a, b) in enumerate(pairs):
        if not isinstance(a, torch.Tensor):
            continue
        close = torch.isclose(a.double(), b.double(), rtol=rtol, atol=atol, equal_nan=True)
        agree &= bool(close.all())
        difference = (a.double() - b.double()).abs().nan_to_num(0.0)
        largest = difference.max().item() if difference.numel() else 0.0
        name = f"output {n}" if n < len(want) else f"argument {n - len(want)}"
        lines.append(f"{name}: {'agrees' if bool(close.all()) else 'DIFFERS'}, largest difference {largest:.2e}")
    return agree, lines


def _outputs(kernel: Any, inputs: list[Any]) -> list[Any]:
    result = kernel(*inputs)
    return list(result) if isinstance(result, (list, tuple)) else [result]
