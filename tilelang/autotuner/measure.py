# SPDX-License-Identifier: Apache-2.0
"""Checks and times one candidate on the GPU.

All candidates see the same inputs. Their results are compared with the user's reference program, or, where there is
none, with those of the first candidate that ran: configurations must not change what a kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Bench", "ProfileOptions"]


@dataclass(frozen=True)
class ProfileOptions:
    """How candidates are checked and timed; times in ms as `do_bench` takes them."""

    warmup: float = 25
    rep: float = 100
    timeout: float = 100  # seconds a candidate's compilation may take
    supply_type: Any = None
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = False
    do_not_specialize: Sequence[str] | None = None
    early_stop: bool = False
    early_stop_factor: float = 2.0

    def __post_init__(self) -> None:
        if self.early_stop_factor < 1:
            raise ValueError(f"early_stop_factor must be at least 1, got {self.early_stop_factor}")


@dataclass
class Bench:
    """Inputs and reference of one search; both are made once, by the first candidate that needs them."""

    options: ProfileOptions
    inputs: list[Any] | None
    reference: list[Any] | None = field(default=None, init=False)
    ref_latency: float | None = field(default=None, init=False)

    def time(self, kernel: Any, best_ms: float | None) -> float:
        """Check the candidate, then its median latency in ms. Raises AssertionError where it is wrong."""
        import tilelang

        inputs = self._inputs_for(kernel)
        if not self.options.skip_check:
            self._check(kernel, inputs)
        limit = self.options.early_stop_factor * best_ms if self.options.early_stop and best_ms is not None else None
        return tilelang.profiler.do_bench(
            lambda: kernel(*inputs),
            warmup=self.options.warmup,
            rep=self.options.rep,
            return_mode="median",
            early_stop_baseline=limit,
        )

    def _inputs_for(self, kernel: Any) -> list[Any]:
        if self.inputs is None:
            if self.options.supply_prog is not None:
                self.inputs = list(self.options.supply_prog(kernel.params))
            else:
                supply = () if self.options.supply_type is None else (self.options.supply_type,)
                self.inputs = list(kernel.get_profiler(*supply).get_inputs())
        return self.inputs

    def _check(self, kernel: Any, inputs: list[Any]) -> None:
        observed, arguments = _run(kernel, inputs)
        if self.options.manual_check_prog is not None:
            self.options.manual_check_prog(observed, self._reference(inputs))
            return
        if self.reference is None and self.options.ref_prog is None:
            self.reference = observed + arguments
        expected = self._reference(inputs)
        # A reference program returns the outputs; a first candidate also stands for what was written in place.
        for got, want in zip((observed + arguments)[: len(expected)], expected, strict=True):
            self._compare(got, want)

    def _reference(self, inputs: list[Any]) -> list[Any]:
        if self.reference is None:
            assert self.options.ref_prog is not None
            import tilelang

            result = self.options.ref_prog(*inputs)
            self.reference = list(result) if isinstance(result, (list, tuple)) else [result]
            self.ref_latency = tilelang.profiler.do_bench(
                lambda: self.options.ref_prog(*inputs),  # pyright: ignore[reportOptionalCall]  asserted above
                warmup=self.options.warmup,
                rep=self.options.rep,
                return_mode="median",
            )
        return self.reference

    def _compare(self, got: Any, want: Any) -> None:
        import torch

        from tilelang.profiler import assert_close

        if isinstance(want, torch.Tensor):
            options = self.options
            assert_close(got, want.reshape(got.shape), options.atol, options.rtol, options.max_mismatched_ratio)


def _run(kernel: Any, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Outputs, and the tensor arguments after the call; the inputs themselves stay as they are."""
    import torch

    arguments = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    result = kernel(*arguments)
    outputs = [] if result is None else list(result) if isinstance(result, (list, tuple)) else [result]
    return outputs, arguments
