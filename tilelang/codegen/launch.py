# SPDX-License-Identifier: Apache-2.0
"""What the host must do to launch the kernels of a function, as data read from TVM's split host function.

All expressions are over the function's own parameters and shape symbols (host `Bind`s are substituted). Kernel
parameters are in the order of the device function: TVM sorts them, so no other order is ever assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tilelang.ir.stmts import as_list, substitute
from tilelang.ir.tensor_map import TensorMapSpec, spec_of_call
from tilelang.support.errors import InternalError

__all__ = ["KernelLaunch", "PointerParam", "ScalarParam", "TensorMapParam", "read_launches"]

_STAGE = "lower_to_cuda"


@dataclass(frozen=True)
class PointerParam:
    """The data pointer of parameter number `index` of the function (`name`)."""

    name: str
    index: int


@dataclass(frozen=True)
class ScalarParam:
    """A value: `expr` over the function's parameters and shape symbols, passed as `dtype`."""

    name: str
    dtype: str
    expr: Any


@dataclass(frozen=True)
class TensorMapParam:
    """A 128-byte tensor map by value, over the tensor that is parameter number `index`."""

    name: str
    index: int
    spec: TensorMapSpec


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel: its name in the text, parameters in launch order, launch extents (x, y, z) as expressions."""

    name: str
    params: tuple[PointerParam | ScalarParam | TensorMapParam, ...]
    grid: tuple[Any, Any, Any]
    block: tuple[Any, Any, Any]
    smem_bytes: Any
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    programmatic: bool = False  # may start before the previous grid ends


def read_launches(host: Any, device: dict[str, Any]) -> tuple[KernelLaunch, ...]:
    """The launches of a host function, in order. Raises InternalError for host code that a launcher cannot run."""
    binds: dict[Any, Any] = {}
    views: dict[Any, Any] = {}  # buffer -> the parameter it is a view of
    maps: dict[Any, TensorMapSpec] = {}
    launches: list[KernelLaunch] = []
    index = {p: i for i, p in enumerate(host.params)}
    for stmt in as_list(host.body):
        match _host_call(stmt):
            case "view":
                root = stmt.data.args[0]
                views[stmt.buffer] = views.get(root, root)
            case "bind":
                binds[stmt.var] = substitute(stmt.value, binds)
            case "tirx.tensormap_encode_tiled":
                maps[stmt.value.args[0]] = spec_of_call(substitute(stmt.value, binds))
            case "tirx.call_ffi_kernel":
                launches.append(_launch(stmt.value, device, binds, views, maps, index))
            case "nothing":
                pass
            case _:
                raise InternalError(f"host code other than launches: {stmt}", stage=_STAGE, span=stmt.span)
    return tuple(launches)


def _host_call(stmt: Any) -> str:
    """What a host statement is: view, bind, nothing, or the name of the op it evaluates."""
    if isinstance(stmt, tirx.DeclBuffer):
        return "view"
    if isinstance(stmt, tirx.AssertStmt):
        return "nothing"  # a precondition of the signature
    value = getattr(stmt, "value", None)
    name = getattr(getattr(value, "op", None), "name", "")
    if isinstance(stmt, tirx.Bind):
        return "nothing" if name == "tirx.tvm_stack_alloca" else "bind"
    return "nothing" if isinstance(value, tirx.IntImm) else name


def _launch(
    call: Any, device: dict[str, Any], binds: Any, views: Any, maps: Any, index: dict[Any, int]
) -> KernelLaunch:
    args = list(call.args)
    name = str(getattr(args[0], "value", args[0]))
    formal = device[name].params
    actual, extents = args[1 : 1 + len(formal)], args[1 + len(formal) :]
    tags = [str(t) for t in call.attrs.launch_params]
    params: list[PointerParam | ScalarParam | TensorMapParam] = []
    for var, arg in zip(formal, actual, strict=True):
        if arg in maps:
            spec = maps[arg]
            params.append(TensorMapParam(var.name, index[views.get(spec.buffer, spec.buffer)], spec))
        elif isinstance(arg, ir.Call) and getattr(arg.op, "name", "").endswith("buffer_data"):
            data: Any = arg.args[0]
            buffer = views.get(data, data)
            params.append(PointerParam(buffer.name, index[buffer]))
        else:
            params.append(ScalarParam(var.name, str(var.ty.dtype), substitute(arg, binds)))
    values = iter(extents)
    by_tag = {tag: substitute(next(values), binds) for tag in tags}
    one = tirx.IntImm("int32", 1)

    def axes(prefix: str) -> tuple[Any, Any, Any]:
        return tuple(by_tag.get(f"{prefix}.{axis}", one) for axis in "xyz")

    return KernelLaunch(
        name,
        tuple(params),
        axes("blockIdx"),
        axes("threadIdx"),
        by_tag.get("tirx.use_dyn_shared_memory", tirx.IntImm("int32", 0)),
    )
