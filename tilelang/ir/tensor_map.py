# SPDX-License-Identifier: Apache-2.0
"""Tensor maps: what the copy engine must know of a global tensor, as host statements in front of the launch.

They are statements, not attributes, so that TVM's substitutions reach the buffers and shapes they name. Dimension 0
is the fastest one, as in the hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script.builder import ir as script

__all__ = ["TensorMapSpec", "find_tensor_maps", "spec_of_call", "tensor_map"]

# bytes -> CUtensorMapSwizzle and CUtensorMapL2promotion
_SWIZZLE = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTION = {0: 0, 64: 1, 128: 2, 256: 3}
_OP = "tirx.tensormap_encode_tiled"


@dataclass(frozen=True)
class TensorMapSpec:
    """One tensor map. `dims`, `strides` are int64 expressions or ints; `strides` in bytes, of dimensions 1, 2, ...

    `swizzle` and `l2_promotion` in bytes (0 = none). Elements outside `dims` read as 0, or NaN with `oob_nan`.
    """

    buffer: Any
    dtype: str
    dims: tuple[Any, ...]
    strides: tuple[Any, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    l2_promotion: int = 128
    oob_nan: bool = False
    element_strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rank = len(self.dims)
        if not 1 <= rank <= 5 or len(self.strides) != rank - 1 or len(self.box) != rank:
            raise ValueError(f"tensor map of {rank} dimensions with {len(self.strides)} strides and box {self.box}")
        if any(not 1 <= b <= 256 for b in self.box):
            raise ValueError(f"tensor map box {self.box}: every extent must be 1 to 256")
        if self.swizzle not in _SWIZZLE or self.l2_promotion not in _PROMOTION:
            raise ValueError(f"tensor map swizzle {self.swizzle} / promotion {self.l2_promotion} bytes does not exist")
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * rank)

    @property
    def rank(self) -> int:
        return len(self.dims)


def _int64(v: Any) -> Any:
    if isinstance(v, int):
        return tirx.IntImm("int64", v)
    return v if str(v.ty.dtype) == "int64" else tirx.Cast("int64", v)


def tensor_map(name: str, spec: TensorMapSpec) -> tuple[Any, list[Any]]:
    """A tensor-map Var and the host statements that define it; use it in device ops as `address_of(var)`."""
    slot = script.tvm_stack_alloca("tensormap", 1)
    var = tirx.Var(name, slot.ty)
    encode = tirx.tensormap_encode_tiled(
        var,
        spec.buffer.data,
        *map(_int64, spec.dims),
        *map(_int64, spec.strides),
        *(tirx.IntImm("int32", b) for b in (*spec.box, *spec.element_strides)),
        descriptor_dtype=spec.dtype,
        rank=spec.rank,
        interleave=0,
        swizzle=_SWIZZLE[spec.swizzle],
        l2_promotion=_PROMOTION[spec.l2_promotion],
        oob_fill=int(spec.oob_nan),
    )
    return var, [tirx.Bind(var, slot), tirx.Evaluate(encode)]


def find_tensor_maps(func: Any) -> dict[Any, TensorMapSpec]:
    """All tensor maps of a function, by their Vars, in order of definition."""
    found: dict[Any, TensorMapSpec] = {}

    def visit(call: Any) -> None:
        if getattr(call.op, "name", "") == _OP:
            found[call.args[0]] = spec_of_call(call)

    tvm_ffi.structural_walk(func.body, (ir.Call, visit))
    return found


def spec_of_call(call: Any) -> TensorMapSpec:
    """The spec that a `tensormap_encode_tiled` call encodes."""
    a, rank = call.attrs, int(call.attrs.rank)
    args = list(call.args)[1:]
    data, args = args[0], args[1:]
    split: list[Sequence[Any]] = []
    for n in (rank, rank - 1, rank, rank):
        split.append(args[:n])
        args = args[n:]
    swizzle = {v: k for k, v in _SWIZZLE.items()}[int(a.swizzle)]
    promotion = {v: k for k, v in _PROMOTION.items()}[int(a.l2_promotion)]
    box, steps = (tuple(int(x) for x in part) for part in split[2:])
    buffer = data.args[0] if isinstance(data, ir.Call) else data
    return TensorMapSpec(
        buffer,
        str(a.descriptor_dtype),
        tuple(split[0]),
        tuple(split[1]),
        box,
        swizzle,
        promotion,
        bool(int(a.oob_fill)),
        steps,
    )
