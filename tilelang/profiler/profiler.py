# SPDX-License-Identifier: Apache-2.0
"""Checks and times a compiled kernel on supplied inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilelang.profiler.bench import do_bench
from tilelang.profiler.supply import TensorSupplyType, make_inputs

__all__ = ["Profiler", "assert_close"]


def assert_close(
    given: Any, wanted: Any, atol: float = 1e-2, rtol: float = 1e-2, max_mismatched_ratio: float = 0.01, name: str = ""
) -> None:
    """Raises `AssertionError` where more than the given share of elements differ; 8-bit floats are compared as
    float32.
    """
    import torch

    label = f"{name}: " if name else ""
    if given.shape != wanted.shape:
        raise AssertionError(f"{label}shapes differ: {list(given.shape)} and {list(wanted.shape)}")
    left, right = (x.detach().to(torch.float32) if _is_narrow(x) else x.detach() for x in (given, wanted))
    right = right.to(left.dtype).to(left.device)
    close = torch.isclose(left, right, rtol=rtol, atol=atol, equal_nan=True)
    mismatched = int((~close).sum())
    if mismatched <= max_mismatched_ratio * max(1, close.numel()):
        return
    worst = int(torch.where(close, 0.0, (left.double() - right.double()).abs().nan_to_num(nan=float("inf"))).argmax())
    raise AssertionError(
        f"{label}{mismatched} of {close.numel()} elements differ (allowed {max_mismatched_ratio:.2%}); "
        f"worst at flat index {worst}: {left.flatten()[worst].item()} against {right.flatten()[worst].item()}"
    )


def _is_narrow(tensor: Any) -> bool:
    return tensor.dtype.is_floating_point and tensor.element_size() == 1


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


class Profiler:
    """Inputs for one kernel, and what is done with them."""

    def __init__(self, kernel: Any, supply_type: TensorSupplyType = TensorSupplyType.Auto) -> None:
        self.kernel = kernel
        self.supply_type = supply_type

    @property
    def func(self) -> Callable[..., Any]:
        return self.kernel

    def with_default_adapter(self, adapter: Any) -> Profiler:
        return self

    def get_inputs(self, symbols: Mapping[str, int] | None = None, device: Any = None) -> list[Any]:
        """Fresh inputs. Raises `ValueError` where a symbol needs a value."""
        where = device if device is not None else "cuda" if self.kernel.target.kind == "cuda" else "cpu"
        return make_inputs(self.kernel.signature, self.supply_type, where, symbols)

    _get_inputs = get_inputs

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Compares with a reference on the same inputs; raises `AssertionError`."""
        inputs = list(input_tensors) if input_tensors is not None else self.get_inputs()
        given, wanted = _as_list(self.kernel(*inputs)), _as_list(reference_program(*inputs))
        if len(given) != len(wanted):
            raise AssertionError(f"the kernel gives {len(given)} outputs, the reference {len(wanted)}")
        for i, (left, right) in enumerate(zip(given, wanted)):
            assert_close(left, right, atol, rtol, max_mismatched_ratio, f"output {i}")

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[..., Any] | None = None,
    ) -> None:
        """Gives both results to `manual_check_prog(kernel outputs, reference outputs)`, which raises where they
        differ.
        """
        if manual_check_prog is None:
            raise ValueError("manual_assert_close needs manual_check_prog")
        inputs = list(input_tensors) if input_tensors is not None else self.get_inputs()
        manual_check_prog(_as_list(self.kernel(*inputs)), _as_list(reference_program(*inputs)))

    def assert_consistent(self, repeat: int = 10) -> None:
        """Runs on the same inputs `repeat` times; raises `AssertionError` where bits differ."""
        import torch

        inputs = self.get_inputs()
        first = [x.clone() for x in _as_list(self.kernel(*inputs))]
        for run in range(1, repeat):
            for i, (left, right) in enumerate(zip(first, _as_list(self.kernel(*inputs)))):
                if not torch.equal(left.view(torch.uint8), right.view(torch.uint8)):
                    raise AssertionError(f"output {i} of run {run} differs from run 0")

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Calls the kernel, or `func`, on supplied inputs."""
        return (func or self.kernel)(*self.get_inputs())

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        dynamic_symbolic_constraints: Mapping[str, int] | None = None,
        device: Any = None,
        early_stop_baseline: float | None = None,
    ) -> Any:
        """Milliseconds a call of the kernel, or of `func`, on supplied inputs."""
        inputs = (
            list(input_tensors) if input_tensors is not None else self.get_inputs(dynamic_symbolic_constraints, device)
        )
        call = func or self.kernel
        return do_bench(
            lambda: call(*inputs),
            warmup=warmup,
            rep=rep,
            _n_warmup=n_warmup,
            _n_repeat=n_repeat,
            quantiles=quantiles,
            backend=backend,
            return_mode=return_mode,
            device=device,
            early_stop_baseline=early_stop_baseline,
        )
