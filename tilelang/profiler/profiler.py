# SPDX-License-Identifier: Apache-2.0
"""Checks and times a compiled kernel on supplied inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilelang.profiler.bench import do_bench
from tilelang.profiler.supply import TensorSupplyType, copied, make_inputs
from tilelang.runtime.device import why_no_device

__all__ = ["Profiler", "assert_close", "called", "is_same"]


def assert_close(
    given: Any,
    wanted: Any,
    atol: float = 1e-2,
    rtol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    name: str = "",
    equal_nan: bool = True,
) -> None:
    """Raises `AssertionError` where more than the given share of elements differ; 8-bit floats are compared as
    float32, and NaN equals NaN if `equal_nan`.
    """
    import torch

    label = f"{name}: " if name else ""
    if given.shape != wanted.shape:
        raise AssertionError(f"{label}shapes differ: {list(given.shape)} and {list(wanted.shape)}")
    left, right = (x.detach().to(torch.float32) if _is_narrow(x) else x.detach() for x in (given, wanted))
    right = right.to(left.dtype).to(left.device)
    close = torch.isclose(left, right, rtol=rtol, atol=atol, equal_nan=equal_nan)
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


def called(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The outputs of a call on copies of the inputs, and the copies after it."""
    arguments = [copied(x) for x in inputs]
    return _as_list(function(*arguments)), arguments


def is_same(left: Any, right: Any) -> bool:
    """Are two results equal in every bit, NaN included?"""
    import torch

    if not torch.is_tensor(left):
        return left == right
    return torch.equal(*(x.contiguous().view(-1).view(torch.uint8) for x in (left, right)))


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
        """Fresh inputs. Raises `ValueError` where a symbol needs a value, `RuntimeError` for a CUDA kernel where there
        is no device."""
        if self.kernel.target.kind == "cuda" and (why := why_no_device()):
            raise RuntimeError(f'{why}; a kernel of target="cpu" or "sim" can be called here')
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
        """Compares with a reference, each called with its own copies of the inputs; raises `AssertionError`.

        Compared are the outputs, and the inputs that the reference writes; where neither gives an output, all inputs,
        of which the reference must have written one.
        """
        inputs = list(input_tensors) if input_tensors is not None else self.get_inputs()
        (given, mine), (wanted, theirs) = called(self.kernel, inputs), called(reference_program, inputs)
        if len(given) != len(wanted):
            hint = "" if given else "; out_idx says which parameters of a kernel are outputs"
            raise AssertionError(f"the kernel gives {len(given)} outputs, the reference {len(wanted)}{hint}")
        pairs = [(f"output {i}", left, right) for i, (left, right) in enumerate(zip(given, wanted))]
        written = [not is_same(before, after) for before, after in zip(inputs, theirs)]
        if not given and not any(written):
            raise AssertionError("nothing to compare: the kernel gives no outputs and the reference writes no input")
        pairs += [
            (f"input {i}", mine[i], theirs[i])
            for i, is_compared in enumerate(written)
            if is_compared or (not given and not is_same(inputs[i], mine[i]))
        ]
        for name, left, right in pairs:
            assert_close(left, right, atol, rtol, max_mismatched_ratio, name)

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
        manual_check_prog(called(self.kernel, inputs)[0], called(reference_program, inputs)[0])

    def assert_consistent(self, repeat: int = 10) -> None:
        """Runs on copies of the same inputs `repeat` times; raises `AssertionError` where bits of outputs or of inputs
        that are written differ.
        """
        inputs = self.get_inputs()
        outputs, arguments = called(self.kernel, inputs)
        names = [*(f"output {i}" for i in range(len(outputs))), *(f"input {i}" for i in range(len(arguments)))]
        first = [*outputs, *arguments]
        for run in range(1, repeat):
            outputs, arguments = called(self.kernel, inputs)
            for name, left, right in zip(names, first, [*outputs, *arguments]):
                if not is_same(left, right):
                    raise AssertionError(f"{name} of run {run} differs from run 0")

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
