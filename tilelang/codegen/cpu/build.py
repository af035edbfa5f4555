# SPDX-License-Identifier: Apache-2.0
"""From loops to machine code: the llvm build, and a callable that takes arrays of any library."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.tirx import compilation_pipeline

from tilelang.codegen.cpu.lower import lower_to_cpu
from tilelang.codegen.remainders import protect_remainders
from tilelang.support.faults import compiler_step

__all__ = ["CpuModule", "build_cpu"]

_PIPELINE = "tilelang_cpu"


def _pipeline() -> tuple[Any, Any, Any]:
    """Own list: the stock ones merge, simplify or reject things that belong to other targets.

    Without StmtSimplify: it takes floats for real numbers ((a + b) - a becomes b, a != a becomes false).
    """

    @tvm.transform.module_pass(opt_level=0)
    def passes(mod: Any, ctx: Any) -> Any:
        t = tirx.transform
        return tvm.ir.transform.Sequential(
            [
                t.FlattenBuffer(),
                t.VectorizeLoop(True),
                t.UnrollLoop(),
                t.AnnotateEntryFunc(),
                t.SplitHostDevice(),
                t.MakePackedAPI(),
                t.FP8StorageLegalize(),
                t.BF16StorageLegalize(),
            ]
        )(mod)

    return passes, compilation_pipeline.finalize_host_passes, compilation_pipeline.finalize_device_passes


compilation_pipeline.register_tir_pipeline(_PIPELINE, _pipeline)


def _target() -> Any:
    return tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})


def build_cpu(func: tirx.PrimFunc, poison: bool = False) -> CpuModule:
    """Compiles a tile program (level 1) for this machine. See `lower_to_cpu` for `poison` and errors."""
    with compiler_step("build_cpu", {"program": func}):
        return CpuModule(func, poison)


class CpuModule:
    """A tile program that runs here.

    Calling it takes tensors (anything with DLPack, numpy arrays also of ml_dtypes types) and scalars in the order of
    the parameters, writes outputs in place and returns None."""

    def __init__(self, func: tirx.PrimFunc, poison: bool = False) -> None:
        self.func = func
        self.lowered = protect_remainders(lower_to_cpu(func, poison))
        self.name = (
            str(self.lowered.attrs["global_symbol"]) if "global_symbol" in (self.lowered.attrs or {}) else "main"
        )
        self.module = tvm.tirx.build(self.lowered.with_attr("global_symbol", self.name), _target(), pipeline=_PIPELINE)
        self.entry = self.module[self.name]

    def __call__(self, *args: Any) -> None:
        """Runs it. Raises TypeError or ValueError (from the generated checks) for arguments that do not fit."""
        self.entry(*(_argument(a) for a in args))

    @property
    def source(self) -> str:
        """The LLVM IR."""
        return str(self.module.inspect_source())


def _argument(value: Any) -> Any:
    """numpy arrays go through torch, which has a DLPack type for each dtype of ml_dtypes. An empty tensor becomes one
    of TVM: DLPack gives it strides that the generated checks take for wrong."""
    if isinstance(value, np.ndarray):
        import torch

        if value.dtype.name not in _NUMPY_DTYPES:
            value = torch.from_numpy(value.view(f"int{8 * value.dtype.itemsize}")).view(
                getattr(torch, value.dtype.name)
            )
        else:
            value = torch.from_numpy(value)
    shape = getattr(value, "shape", None)
    if shape is not None and 0 in tuple(shape) and hasattr(value, "dtype"):
        return tvm.runtime.empty(tuple(shape), str(value.dtype).removeprefix("torch."))
    return value


_NUMPY_DTYPES = frozenset(np.dtype(c).name for c in "?bBhHiIlLqQefd")
