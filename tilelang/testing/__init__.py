# SPDX-License-Identifier: Apache-2.0
"""What tests of kernels need: seeds, skips by device, comparisons, and a main."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import random
import sys
from collections.abc import Callable
from typing import Any

from tilelang.profiler.profiler import assert_close
from tilelang.runtime import device

__all__ = [
    "assert_relative_error",
    "main",
    "process_func",
    "regression",
    "requires_cdna",
    "requires_cuda",
    "requires_cuda_compute_version",
    "requires_cuda_compute_version_eq",
    "requires_cuda_compute_version_ge",
    "requires_cuda_compute_version_gt",
    "requires_cuda_compute_version_le",
    "requires_cuda_compute_version_lt",
    "requires_llvm",
    "requires_metal",
    "requires_package",
    "requires_rocm",
    "set_random_seed",
    "torch_assert_close",
]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
}


def main() -> None:
    """Runs pytest on the calling file and ends the process with its status."""
    import pytest

    caller = inspect.stack()[1].filename
    sys.exit(pytest.main([caller, *sys.argv[1:]]))


def set_random_seed(seed: int = 42) -> None:
    """Seeds Python, numpy and torch."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def torch_assert_close(
    tensor_a: Any,
    tensor_b: Any,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    verbose: bool = False,
    equal_nan: bool = True,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    base_name: str = "LHS",
    ref_name: str = "RHS",
) -> bool:
    """True where at most the given share of elements differ; raises `AssertionError` otherwise, and for devices,
    dtypes, layouts (strided or sparse) and strides that differ where these are checked. `verbose` prints nothing more:
    the error says where the largest difference is.
    """
    if check_device and tensor_a.device != tensor_b.device:
        raise AssertionError(f"{base_name} is on {tensor_a.device}, {ref_name} on {tensor_b.device}")
    if check_dtype and tensor_a.dtype != tensor_b.dtype:
        raise AssertionError(f"{base_name} has dtype {tensor_a.dtype}, {ref_name} {tensor_b.dtype}")
    if check_layout and tensor_a.layout != tensor_b.layout:
        raise AssertionError(f"{base_name} has layout {tensor_a.layout}, {ref_name} {tensor_b.layout}")
    if check_stride and tensor_a.stride() != tensor_b.stride():
        raise AssertionError(f"{base_name} has strides {tensor_a.stride()}, {ref_name} {tensor_b.stride()}")
    assert_close(tensor_a, tensor_b, atol, rtol, max_mismatched_ratio, f"{base_name} against {ref_name}", equal_nan)
    return True


def assert_relative_error(given: Any, wanted: Any, limit: float) -> float:
    """The relative error in the Frobenius norm, |given - wanted| / |wanted|; raises `AssertionError` above `limit`.

    Both are compared as float64; against a `wanted` of zeros the error is |given|. NaN raises. One number for a whole
    result: products of rounded operands err by their rounding (bfloat16 2e-3, float16 2e-4) whatever their size, while
    a wrong element in ten thousand shows as 1e-2.
    """
    if given.shape != wanted.shape:
        raise AssertionError(f"shapes differ: {list(given.shape)} and {list(wanted.shape)}")
    left, right = given.detach().double(), wanted.detach().double().to(given.device)
    error = ((left - right).norm() / (right.norm() or 1.0)).item()
    if not error <= limit:  # so that NaN raises too
        raise AssertionError(f"relative error {error:.2e}, allowed {limit:.2e}")
    return error


def _skip_unless(condition: bool, reason: str) -> Callable[[Any], Any]:
    import pytest

    return pytest.mark.skipif(not condition, reason=reason)


def _decorate(func: Any, condition: bool, reason: str) -> Any:
    mark = _skip_unless(condition, reason)
    return mark if func is None else mark(func)


def requires_cuda(func: Any = None) -> Any:
    """Skips where no CUDA device is present."""
    return _decorate(func, device.device_count() > 0, device.why_no_device() or "needs a CUDA device")


def requires_cuda_compute_version(major: int, minor: int = 0, mode: str = "ge") -> Callable[[Any], Any]:
    """Skips where the device's compute capability does not compare as `mode` (ge, gt, le, lt, eq) with (major,
    minor).
    """
    if not isinstance(major, int) or not isinstance(minor, int):  # the bare decorator would skip its test for ever
        raise TypeError(f"needs a compute capability, as requires_cuda_compute_version(9, 0), got {major!r}")
    if mode not in _COMPARE:
        raise ValueError(f"mode is one of {', '.join(_COMPARE)}, got {mode!r}")
    present = device.compute_capability()
    met = present is not None and _COMPARE[mode](present, (major, minor))
    return _skip_unless(met, f"needs compute capability {mode} {major}.{minor}, present: {present or 'no device'}")


def requires_cuda_compute_version_ge(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "ge")


def requires_cuda_compute_version_gt(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "gt")


def requires_cuda_compute_version_le(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "le")


def requires_cuda_compute_version_lt(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "lt")


def requires_cuda_compute_version_eq(major: int, minor: int = 0) -> Callable[[Any], Any]:
    return requires_cuda_compute_version(major, minor, "eq")


def requires_package(*names: str) -> Callable[[Any], Any]:
    """Skips where one of the Python packages is absent."""
    if not names or not all(isinstance(n, str) for n in names):
        raise TypeError(f"requires_package takes names of packages, as requires_package('numpy'), got {names!r}")
    missing = [n for n in names if importlib.util.find_spec(n) is None]
    return _skip_unless(not missing, f"needs {', '.join(missing)}")


def requires_llvm(func: Any = None) -> Any:
    return _decorate(func, True, "")


def requires_rocm(func: Any = None) -> Any:
    return _decorate(func, False, "AMD devices are not supported")


def requires_metal(func: Any = None) -> Any:
    return _decorate(func, False, "Metal devices are not supported")


def requires_cdna(func: Any = None) -> Any:
    return _decorate(func, False, "AMD devices are not supported")


_RESULTS: dict[str, float] = {}


def process_func(func: Callable[..., Any], name: str | None = None, *args: Any, **kwargs: Any) -> float:
    """Runs a benchmark function that returns milliseconds, and keeps the figure under `name`."""
    latency = float(func(*args, **kwargs))
    _RESULTS[name or func.__name__] = latency
    return latency


def regression() -> dict[str, float]:
    """Runs every `regression_*` function of the calling module; gives milliseconds by name."""
    caller = sys._getframe(1).f_globals
    for key, value in list(caller.items()):
        if key.startswith("regression_") and callable(value):
            result = value()
            _RESULTS.setdefault(key, float(result) if isinstance(result, (int, float)) else float("nan"))
    return dict(_RESULTS)
