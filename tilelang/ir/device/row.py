# SPDX-License-Identifier: Apache-2.0
"""The shape of a device-op row, and the helpers that write CUDA text for one.

A row is a family: its static parameters choose one `Form`, which has operands, result type, CUDA body and effects.
All four come from one function, so that they cannot drift apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

from tilelang.ir.attrs import DEVICE_OP_PREFIX
from tilelang.ir.device.effects import Convergence, Effect

__all__ = [
    "CTYPE",
    "DeviceOpRow",
    "Form",
    "Kind",
    "Operand",
    "Static",
    "asm",
    "gmem",
    "regs",
    "smem",
    "tmap",
    "value",
]


class Kind(Enum):
    """What an operand is in the IR."""

    VALUE = "value"  # scalar expression
    SMEM = "smem"  # address_of(view[i]) of shared memory; 32-bit shared address after lower_shared_addresses
    GMEM = "gmem"  # address_of(buffer[i]) of global memory
    TMAP = "tmap"  # address_of(tensor map Var)
    REGS = "regs"  # address_of(local[i]) or local.data: `count` registers of `dtype` from there on


@dataclass(frozen=True)
class Operand:
    name: str
    kind: Kind
    dtype: str  # VALUE: its type; GMEM: element type, "" = any; REGS: type of one register
    count: int = 1


@dataclass(frozen=True)
class Static:
    """A static parameter. `default` None means required."""

    name: str
    type: type
    default: Any = None
    choices: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Form:
    """One member of a family. `result` is a dtype or "void"; `body` is the body of the CUDA helper."""

    operands: tuple[Operand, ...]
    body: str
    result: str = "void"
    effects: tuple[Effect, ...] = ()
    include: str = ""  # a CUDA header the body needs


@dataclass(frozen=True)
class DeviceOpRow:
    """One device op. `needs` is the lowest architecture; a trailing "a" means that very one."""

    name: str
    build: Callable[..., Form] | Form
    statics: tuple[Static, ...] = ()
    converges: Convergence = Convergence.THREAD
    needs: str = "sm_80"
    uniform: bool = False  # the result is the same in all lanes of the warp
    doc: str = ""
    forms: Callable[..., Form] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        build = self.build
        call = (lambda: build) if isinstance(build, Form) else build
        object.__setattr__(self, "forms", lru_cache(maxsize=None)(call))

    @property
    def op_name(self) -> str:
        return DEVICE_OP_PREFIX + self.name

    def complete(self, given: dict[str, Any]) -> dict[str, Any]:
        """All static parameters in row order. Raises KeyError or ValueError on what the row does not take."""
        unknown = set(given) - {s.name for s in self.statics}
        if unknown:
            raise KeyError(
                f"{self.name} has no static parameter {sorted(unknown)}; it has {[s.name for s in self.statics]}"
            )
        full: dict[str, Any] = {}
        for s in self.statics:
            v = given.get(s.name, s.default)
            if v is None:
                raise KeyError(f"{self.name} needs the static parameter {s.name!r}")
            v = s.type(v)
            if s.choices and v not in s.choices:
                raise ValueError(f"{self.name}: {s.name}={v!r} is not one of {list(s.choices)}")
            full[s.name] = v
        return full

    def form(self, **statics: Any) -> Form:
        """The member of the family that `statics` choose."""
        return self.forms(**self.complete(statics))

    def helper_name(self, statics: dict[str, Any]) -> str:
        """Name of the CUDA function."""
        parts = [
            f"m{-v}" if isinstance(v, int) and v < 0 else str(int(v) if isinstance(v, bool) else v)
            for v in statics.values()
        ]
        return re.sub(r"\W", "_", "_".join(["tl", self.name, *(p for p in parts if p)]))

    def helper_text(self, statics: dict[str, Any]) -> str:
        """Text of the CUDA function."""
        form = self.form(**statics)
        params, prologue = [], ""
        for o in form.operands:
            if o.kind is Kind.REGS:
                params.append(f"void* {o.name}_")
                prologue += f"{CTYPE[o.dtype]}* {o.name} = ({CTYPE[o.dtype]}*){o.name}_; "
            elif o.kind is Kind.GMEM:
                params.append(f"const void* {o.name}")  # untyped: int64_t is `long` for nvcc and `long long` for NVRTC
            else:
                params.append(f"{_param_type(o)} {o.name}")
        name = self.helper_name(statics)
        include = f"#include <{form.include}>\n" if form.include else ""
        signature = f"__device__ __forceinline__ {CTYPE[form.result]} {name}({', '.join(params)})"
        return f"{include}{signature} {{ {prologue}{form.body} }}\n"


# TVM dtype -> type in the CUDA text that TVM prints.
CTYPE = {
    "void": "void",
    "handle": "const void*",
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "half",
    "bfloat16": "nv_bfloat16",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "float8_e8m0fnu": "__nv_fp8_e8m0",
    "float32": "float",
    "float64": "double",
}

# dtype -> inline asm constraint.
_CONSTRAINT = {
    "int16": "h",
    "uint16": "h",
    "int32": "r",
    "uint32": "r",
    "bool": "r",
    "int64": "l",
    "uint64": "l",
    "float32": "f",
    "float64": "d",
}


def _param_type(o: Operand) -> str:
    return {Kind.SMEM: "int", Kind.TMAP: "unsigned long long"}.get(o.kind) or CTYPE[o.dtype]


def value(name: str, dtype: str = "int32") -> Operand:
    return Operand(name, Kind.VALUE, dtype)


def smem(name: str) -> Operand:
    return Operand(name, Kind.SMEM, "int32")


def gmem(name: str, dtype: str = "") -> Operand:
    return Operand(name, Kind.GMEM, dtype)


def tmap(name: str) -> Operand:
    return Operand(name, Kind.TMAP, "uint64")


def regs(name: str, dtype: str, count: int) -> Operand:
    return Operand(name, Kind.REGS, dtype, count)


def _constraint(o: Operand) -> str:
    if o.kind is Kind.GMEM:
        return "l"
    return _CONSTRAINT[o.dtype]


def asm(
    text: str,
    operands: Sequence[Operand],
    result: str = "",
    *,
    write: Sequence[str] = (),
    update: Sequence[str] = (),
    pure: bool = False,
    memory: bool = True,
) -> str:
    """Body of one inline asm statement; `$name` in `text` is an operand, `$name` of REGS the comma-separated list of
    them.

    `$result` is the returned value. REGS operands named in `write` are "=", in `update` "+", others inputs. A `pure`
    asm may be moved and merged by the compiler; otherwise it is volatile and clobbers memory (unless `memory` is off).
    """
    outs: list[str] = []
    ins: list[str] = []
    names: dict[str, list[tuple[list[str], int]]] = {}
    if result:
        names["result"] = [(outs, len(outs))]
        outs.append(f'"={_CONSTRAINT[result]}"(y)')
    for o in operands:
        target, mark = (outs, "=") if o.name in write else (outs, "+") if o.name in update else (ins, "")
        exprs = [f"{o.name}[{i}]" for i in range(o.count)] if o.kind is Kind.REGS else [o.name]
        if o.kind is Kind.VALUE and o.dtype == "bool":
            exprs = [f"(int){o.name}"]
        names[o.name] = [(target, len(target) + i) for i in range(len(exprs))]
        target.extend(f'"{mark}{_constraint(o)}"({e})' for e in exprs)

    def slot(match: re.Match[str]) -> str:
        return ", ".join(f"%{i if where is outs else len(outs) + i}" for where, i in names[match.group(1)])

    text = re.sub(r"\$(\w+)", slot, text)
    volatile, clobber = ("", "") if pure else (" volatile", ' : "memory"' if memory else "")
    statement = f'asm{volatile}("{text}" : {", ".join(outs)} : {", ".join(ins)}{clobber});'
    return f"{CTYPE[result]} y; {statement} return y;" if result else statement
