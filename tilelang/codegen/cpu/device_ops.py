# SPDX-License-Identifier: Apache-2.0
"""Device ops that a tile program may use, as the cpu target computes them.

Atomics are real ones: blocks run on several cores. Approximate functions are exact here. Exchanges between lanes are
gone already (`lanes`); barriers and hints mean nothing where threads run in lockstep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.codegen.cpu.llvm_helpers import is_helper, maximum_nan
from tilelang.ir.device_ops import DeviceOp

__all__ = ["lower_device_op"]

# Barriers of warp and block (statements run in lockstep), and hints. Barriers of more than a block or less than a warp
# group are not here: they order threads that do not run in lockstep.
_NOTHING = frozenset(
    {
        "fence_proxy_async",
        "griddep_launch",
        "griddep_wait",
        "nanosleep",
        "setmaxnreg_dec",
        "setmaxnreg_inc",
        "sync_threads",
        "syncwarp",
    }
)


def lower_device_op(op: DeviceOp) -> Any:
    """The expression that stands for an op; None when it does nothing. Raises CpuUnsupported."""
    if op.name in _NOTHING:
        return None
    if op.name == "fma":
        return _fma(op.statics["dtype"], *op.operands.values())
    if op.name in _MATH:
        return _MATH[op.name](*op.operands.values())
    if op.name == "atomic_load":
        return _pointer(op)
    if op.name == "atomic_store":
        return _extern(op, f"tl_atomic_exch_{op.statics['dtype']}")
    if op.name.startswith("atomic_"):
        return _extern(op, f"tl_{op.name}_{op.statics.get('dtype')}")
    if op.name.startswith("ieee_"):
        return _extern(op, f"tl_{op.name}_{op.statics['rounding']}_{op.statics['dtype']}")
    raise CpuUnsupported(what=f"device operation {op.name}")


def _pointer(op: DeviceOp) -> Any:
    """The element that an atomic load reads: x86 and arm64 read aligned words at once."""
    return op["p"].args[0]


def _extern(op: DeviceOp, name: str) -> Any:
    if not is_helper(name):
        raise CpuUnsupported(what=f"{op.name} of {op.statics.get('dtype')}")
    return tirx.call_extern(str(op.statics["dtype"]), name, *op.operands.values())


def _fma(dtype: str, *operands: Any) -> Any:
    """Of 16-bit floats in float32 rounded to odd, and from there to the nearest: as if at once."""
    if dtype == "float32":
        return tirx.call_pure_extern(dtype, "tl_ieee_fma_rn_float32", *operands)
    wide = (tirx.Cast("float32", v) for v in operands)
    return tirx.Cast(dtype, tirx.call_pure_extern("float32", "tl_ieee_fma_odd_float32", *wide))


def _one_over(x: Any) -> Any:
    return tirx.const(1.0, "float32") / x


_MATH: dict[str, Callable[..., Any]] = {
    "ex2": tirx.exp2,
    "lg2": tirx.log2,
    "rcp": _one_over,
    "rsqrt": tirx.rsqrt,
    "sqrt_approx": tirx.sqrt,
    "sin_approx": tirx.sin,
    "cos_approx": tirx.cos,
    "tanh_approx": tirx.tanh,
    "max3": lambda a, b, c: tirx.Max(tirx.Max(a, b), c),
    "max_nan": lambda a, b: maximum_nan("max", a, b),
    "min_nan": lambda a, b: maximum_nan("min", a, b),
    "div_approx": lambda a, b: a / b,
    "ieee_rsqrt": lambda a: tirx.Cast("float32", tirx.const(1.0, "float64") / tirx.sqrt(tirx.Cast("float64", a))),
    "keep": lambda x: x,
}
