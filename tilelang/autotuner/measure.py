# SPDX-License-Identifier: Apache-2.0
"""Checks and times one candidate on the GPU.

All candidates see the same inputs. Their results are compared with the user's reference program, or, where there is
none, with those of the first candidate that ran: configurations must not change what a kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelang.profiler.profiler import called, is_same
from tilelang.profiler.supply import copied

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
        if self.manual_check_prog is not None and self.ref_prog is None:
            raise ValueError("manual_check_prog compares with the results of ref_prog, which is missing")


@dataclass
class Bench:
    """Inputs and reference of one search; both are made once, by the first candidate that needs them."""

    options: ProfileOptions
    inputs: list[Any] | None
    reference: tuple[list[Any], dict[int, Any]] | None = field(default=None, init=False)
    ref_latency: float | None = field(default=None, init=False)

    def time(self, kernel: Any, best_ms: float | None) -> float:
        """Check the candidate, then its median latency in ms. Raises AssertionError where it is wrong."""
        import tilelang

        inputs = self._inputs_for(kernel)
        if not self.options.skip_check:
            self._check(kernel, inputs)
        limit = self.options.early_stop_factor * best_ms if self.options.early_stop and best_ms is not None else None
        arguments = [copied(x) for x in inputs]  # what a kernel writes in place is no other candidate's input
        return tilelang.profiler.do_bench(
            lambda: kernel(*arguments),
            warmup=self.options.warmup,
            rep=self.options.rep,
            return_mode="median",
            early_stop_baseline=limit,
        )

    def _inputs_for(self, kernel: Any) -> list[Any]:
        if self.inputs is None:
            if self.options.supply_prog is not None:
                made = self.options.supply_prog(kernel.params)
                self.inputs = list(made) if isinstance(made, (list, tuple)) else [made]
            else:
                supply = () if self.options.supply_type is None else (self.options.supply_type,)
                self.inputs = list(kernel.get_profiler(*supply).get_inputs())
        return self.inputs

    def _check(self, kernel: Any, inputs: list[Any]) -> None:
        observed, arguments = called(kernel, inputs)
        if self.options.ref_prog is not None:
            expected, written = self._reference(inputs)
        else:  # the first candidate stands for the reference, with what it wrote in place
            self.reference = expected, written = self.reference or (observed, dict(enumerate(arguments)))
        if self.options.manual_check_prog is not None:
            self.options.manual_check_prog(observed, expected)
            return
        if len(observed) != len(expected):
            raise AssertionError(f"the kernel gives {len(observed)} outputs, ref_prog {len(expected)}")
        for got, want in [*zip(observed, expected), *((arguments[i], want) for i, want in written.items())]:
            self._compare(got, want)

    def _reference(self, inputs: list[Any]) -> tuple[list[Any], dict[int, Any]]:
        """What `ref_prog` gives, and the inputs that it writes by their positions."""
        if self.reference is None:
            import tilelang

            program = self.options.ref_prog
            assert program is not None
            outputs, arguments = called(program, inputs)
            written = {i: x for i, x in enumerate(arguments) if not is_same(inputs[i], x)}
            if not outputs and not written:
                raise ValueError("ref_prog gives no outputs and writes no input: there is nothing to compare with")
            self.reference = outputs, written
            timed = [copied(x) for x in inputs]
            self.ref_latency = tilelang.profiler.do_bench(
                lambda: program(*timed),
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
