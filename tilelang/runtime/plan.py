# SPDX-License-Identifier: Apache-2.0
"""The launch plan: how a cubin's kernels are called, as plain data.

A plan holds the signature and, for each kernel of the cubin in launch order, its grid, block, shared memory,
attributes and where each of its parameters comes from. `native_json` is what src/launcher.cc reads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tilelang.runtime import dtypes
from tilelang.runtime.signature import Signature, TensorArg

__all__ = [
    "KernelLaunch",
    "LaunchPlan",
    "Param",
    "PointerParam",
    "ScalarParam",
    "TensorMapParam",
    "TileQueueParam",
    "ValueParam",
    "WorkspaceParam",
]


@dataclass(frozen=True)
class PointerParam:
    """The data address of tensor argument `arg`."""

    arg: int
    kind: str = "pointer"


@dataclass(frozen=True)
class ValueParam:
    """An integer computed from slots (expression text)."""

    value: str
    dtype: str = "int32"
    kind: str = "value"


@dataclass(frozen=True)
class ScalarParam:
    """Scalar argument `arg`, as it is."""

    arg: int
    kind: str = "scalar"


@dataclass(frozen=True)
class WorkspaceParam:
    """The address of workspace `index`."""

    index: int
    kind: str = "workspace"


@dataclass(frozen=True)
class TileQueueParam:
    """The address of 8 bytes that no launch running at the same time uses: a counter of tiles (4 bytes, 0 between
    launches), and the state of grid barriers (4 bytes, any one that launches leave)."""

    kind: str = "tile_queue"


@dataclass(frozen=True)
class TensorMapParam:
    """A tensor map over argument `arg` (or workspace `arg`). Dimension 0 is the fastest; `dims` in elements,
    `strides` in bytes from the second dimension on and `offset` in bytes are expression texts; `box` in elements;
    swizzle and L2 promotion in bytes.
    """

    arg: int
    dtype: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    offset: str = "0"
    swizzle: int = 0
    l2_promotion: int = 128
    oob_nan: bool = False
    workspace: bool = False
    kind: str = "tensor_map"


Param = PointerParam | ValueParam | ScalarParam | WorkspaceParam | TileQueueParam | TensorMapParam
_PARAMS: dict[str, Any] = {
    "pointer": PointerParam,
    "value": ValueParam,
    "scalar": ScalarParam,
    "workspace": WorkspaceParam,
    "tile_queue": TileQueueParam,
    "tensor_map": TensorMapParam,
}


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel: its symbol in the cubin and its launch. Grid, block and shared memory (bytes) are expression
    texts.
    """

    entry: str
    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    params: tuple[Param, ...]
    shared_bytes: str = "0"
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    programmatic: bool = False


@dataclass(frozen=True)
class LaunchPlan:
    """All launches of one compiled function. `workspaces` are sizes in bytes (expression texts), allocated at each
    call.
    """

    signature: Signature
    kernels: tuple[KernelLaunch, ...]
    workspaces: tuple[str, ...] = ()
    device_type: str = "cuda"
    arch: str = field(default="")

    def to_json(self) -> dict[str, Any]:
        return {
            "signature": self.signature.to_json(),
            "kernels": [_kernel_json(k) for k in self.kernels],
            "workspaces": list(self.workspaces),
            "device_type": self.device_type,
            "arch": self.arch,
        }

    def native_json(self) -> dict[str, Any]:
        """`to_json` with what the element types mean, so that the launcher needs no table of them."""
        data = self.to_json()
        for spec, arg in zip(self.signature.args, data["signature"]["args"]):
            if isinstance(spec, TensorArg):
                arg["carriers"] = [dtypes.dlpack_name(c) for c in dtypes.carriers_of(spec.dtype)]
                arg["packing"] = dtypes.packing_of(spec.dtype)
        return data

    @staticmethod
    def from_json(data: dict[str, Any]) -> LaunchPlan:
        return LaunchPlan(
            Signature.from_json(data["signature"]),
            tuple(_kernel_from_json(k) for k in data["kernels"]),
            tuple(data["workspaces"]),
            data["device_type"],
            data["arch"],
        )


def _kernel_json(kernel: KernelLaunch) -> dict[str, Any]:
    data = asdict(kernel)
    for param in data["params"]:
        if param["kind"] == "tensor_map" and not param["element_strides"]:
            param["element_strides"] = [1] * len(param["dims"])
    return data


def _kernel_from_json(data: dict[str, Any]) -> KernelLaunch:
    params = tuple(
        _PARAMS[p["kind"]](**{k: tuple(v) if isinstance(v, list) else v for k, v in p.items()}) for p in data["params"]
    )
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "params"}
    return KernelLaunch(**fields, params=params)
