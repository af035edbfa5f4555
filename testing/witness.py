# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them, each with what it must compute: the form that `testing/programs` is written in.

    @program(N=(1, 7, 229))
    def wider_than_the_block(N):
        '''A fragment whose width is no multiple of the thread count.'''

        @T.prim_func
        def main(X: T.Tensor((3, N), "float32"), Y: T.Tensor((3, N), "float32")): ...

        x = randn(3, N)
        return run(main, x, out(x * 2 + 1))

Keywords of `program` are the values a parameter takes; all combinations are tested. The function returns one run or a
list of them; runs of the same kernel share its compilation. Arguments stand in the order of the kernel's parameters:
tensors, numbers, and `out(want)` or `changed(before, want)` where the kernel writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import tilelang
from tilelang.support.errors import UserError

__all__ = ["PROGRAMS", "Program", "changed", "check", "ints", "out", "program", "randn", "refused", "run"]


@dataclass(frozen=True)
class Written:
    """An argument that the kernel writes: what is in it before, what must be in it afterwards."""

    before: torch.Tensor
    want: torch.Tensor
    tolerance: dict[str, float]


@dataclass(frozen=True)
class Run:
    """One call of a kernel: a PrimFunc, or a jit function whose results are `returns`."""

    kernel: Any
    args: tuple[Any, ...]
    returns: tuple[torch.Tensor, ...]
    keywords: dict[str, Any]
    tolerance: dict[str, float]
    options: dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """A program that is no program: making or compiling it raises an error whose text has all of `words`."""

    make: Callable[[], Any]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """`make(**arguments)` gives its runs; `devices` are the targets where it has a meaning."""

    name: str
    make: Callable[..., Any]
    arguments: dict[str, Any]
    devices: tuple[str, ...]

    @property
    def title(self) -> str:
        values = ",".join(f"{k}={getattr(v, '__name__', v)}" for k, v in self.arguments.items())
        return f"{self.name}[{values}]" if values else self.name


PROGRAMS: list[Program] = []
EVERYWHERE = ("cpu", "sim", "sim:sm_80")  # the last has no copy engine and no wgmma: other copies, products, pipelines
ON_DEVICES = ("sim", "sim:sm_80")  # what a program on one thread has no meaning for
ON_HOPPER = ("sim",)


def program(devices: tuple[str, ...] = EVERYWHERE[:2], **values: tuple[Any, ...]) -> Callable[..., Any]:
    """Registers a program for every combination of its parameters' values."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        assert make.__doc__, f"{make.__name__} does not say what it witnesses"
        for chosen in itertools.product(*values.values()):
            PROGRAMS.append(Program(make.__name__, make, dict(zip(values, chosen)), devices))
        return make

    return register


def run(kernel: Any, *args: Any, returns: Any = (), tolerance: Any = None, options: Any = None, **keywords: Any) -> Run:
    """One call of `kernel`. `tolerance` is for `returns`; `options` are for `tilelang.compile`."""
    returned = returns if isinstance(returns, tuple) else (returns,)
    return Run(kernel, args, returned, keywords, tolerance or {}, options or {})


def refused(make: Callable[[], Any], *words: str) -> Refusal:
    """`make()` gives a kernel that must be refused with an error that has all of `words` in its text."""
    return Refusal(make, words)


def out(want: torch.Tensor, **tolerance: float) -> Written:
    """A tensor that the kernel fills. What it holds before would be noticed in a result."""
    garbage = float("nan") if want.dtype.is_floating_point else 77
    return Written(torch.full(want.shape, garbage).to(want.dtype), want.contiguous(), tolerance)


def changed(before: torch.Tensor, want: torch.Tensor, **tolerance: float) -> Written:
    """A tensor that the kernel reads and writes, or writes in part."""
    return Written(before, want, tolerance)


def randn(*shape: int, dtype: str = "float32") -> torch.Tensor:
    return torch.randn(*shape).to(getattr(torch, dtype))


def ints(*shape: int, low: int = -8, high: int = 9, dtype: str = "int32") -> torch.Tensor:
    """Whole numbers of [low, high), exact in products and sums of any type."""
    return torch.randint(low, high, shape).to(getattr(torch, dtype))


def check(what: Program, target: str) -> None:
    """Makes, compiles and runs a program on a target; a wrong result is an AssertionError."""
    torch.manual_seed(0)
    device = "cuda" if target.startswith("cuda") else "cpu"
    made = what.make(**what.arguments)
    kernels: dict[int, Any] = {}
    for number, each in enumerate(made if isinstance(made, list) else [made]):
        if isinstance(each, Refusal):
            _check_refusal(each, target)
            continue
        if isinstance(each.kernel, tilelang.jit.JITImpl):
            kernel = each.kernel
        else:
            kernel = kernels.get(id(each.kernel)) or tilelang.compile(each.kernel, target=target, **each.options)
            kernels[id(each.kernel)] = kernel
        _check_run(kernel, each, device, f"run {number}")


def _check_refusal(refusal: Refusal, target: str) -> None:
    try:
        kernel = refusal.make()
        tilelang.compile(kernel, target=target)
    except (UserError, ValueError) as error:
        missing = [w for w in refusal.words if w not in str(error)]
        assert not missing, f"the error does not speak of {missing}: {error}"
    else:
        raise AssertionError("accepted a program that must be refused")


def _check_run(kernel: Any, one: Run, device: str, name: str) -> None:
    args = [_there(a.before if isinstance(a, Written) else a, device) for a in one.args]
    results = kernel(*args, **one.keywords)
    for number, (given, asked) in enumerate(zip(args, one.args)):
        if isinstance(asked, Written):
            _same(given, asked.want, asked.tolerance, f"{name}, argument {number}")
    if one.returns:
        got = results if isinstance(results, list | tuple) else [results]
        assert len(got) == len(one.returns), f"{name}: {len(got)} results"
        for number, (result, want) in enumerate(zip(got, one.returns)):
            _same(result, want, one.tolerance, f"{name}, result {number}")


def _there(value: Any, device: str) -> Any:
    """A copy of a tensor on a device, with the strides and the offset it has."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.as_strided(value, (value.untyped_storage().nbytes() // value.element_size(),), (1,), 0)
    return torch.as_strided(storage.clone().to(device), value.shape, value.stride(), value.storage_offset())


def _same(got: torch.Tensor, want: torch.Tensor, tolerance: dict[str, float], name: str) -> None:
    assert got.dtype == want.dtype, f"{name}: {got.dtype} instead of {want.dtype}"
    exact = not want.dtype.is_floating_point
    wide = torch.int64 if exact else torch.float64
    limits = {"rtol": 0.0, "atol": 0.0} if exact else {**_limits(want.dtype), **tolerance}
    torch.testing.assert_close(
        got.cpu().to(wide), want.cpu().to(wide), equal_nan=True, **limits, msg=lambda text: f"{name}: {text}"
    )


def _limits(dtype: torch.dtype) -> dict[str, float]:
    """Two units in the last place of values around one."""
    return {"rtol": 2 * torch.finfo(dtype).eps, "atol": 2 * torch.finfo(dtype).eps}
