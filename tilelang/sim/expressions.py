# SPDX-License-Identifier: Apache-2.0
"""Expressions of a level-4 PrimFunc -> Python source (one half of `tilelang.sim.source`).

`ex(e)` gives (source text, kind); kind "u" is a Python number, "v" may be an array over threads. Loads and device ops
are evaluated under the current mask; the arms of `and`, `or`, `Select` and `if_then_else` under the part of it that
takes them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from tvm import tirx

from tilelang.ir.device_ops import Access, DeviceOp, Kind, Mode
from tilelang.ir.stmts import const_int
from tilelang.sim.report import SimUnsupported
from tilelang.sim.table import MEANINGS
from tilelang.sim.values import INTRINSICS, np_dtype
from tilelang.support.float8 import is_float8, to_float8

__all__ = ["Expressions"]

_BINARY = {
    "Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%", "EQ": "==", "NE": "!=", "LT": "<",
    "LE": "<=", "GT": ">", "GE": ">=", "BitwiseXor": "^", "BitwiseAnd": "&", "BitwiseOr": "|", "LShift": "<<",
    "RShift": ">>",
}  # fmt: skip
_BINARY_CALLS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>"}
_FUNCTIONS = {"Div": "trunc_div", "Mod": "trunc_mod", "Min": "minimum", "Max": "maximum"}
_DIVISIONS = {"FloorDiv": "floor_div", "FloorMod": "floor_mod", "Div": "trunc_div", "Mod": "trunc_mod"}
# Uniform integers are Python's: these are reduced to the width of their type (signed sums seldom leave it).
_WRAPPING = {"u": {"Add", "Sub", "Mul", "LShift"}, "i": {"Mul", "LShift"}, "b": set(), "f": set(), "V": set()}
# C functions that kernels call by name.
_EXTERN = {
    "__expf": "exp", "expf": "exp", "exp2f": "exp2", "__logf": "log", "logf": "log", "log2f": "log2",
    "__log2f": "log2", "sqrtf": "sqrt", "rsqrtf": "rsqrt", "tanhf": "tanh", "fabsf": "fabs", "floorf": "floor",
    "ceilf": "ceil", "roundf": "roundf", "truncf": "trunc", "sinf": "sin", "cosf": "cos", "__sinf": "sin",
    "__cosf": "cos", "erff": "erf", "powf": "pow", "__powf": "pow", "fmaf": "fma", "rintf": "nearbyint",
    "nearbyintf": "nearbyint", "fmodf": "fmod", "log1pf": "log1p", "log10f": "log10",
    "asinhf": "asinh", "acoshf": "acosh", "atanhf": "atanh", "hypotf": "hypot", "ldexpf": "ldexp",
}  # fmt: skip


class Expressions:
    """Emitting half of the translator: names, constants and expressions."""

    def __init__(self) -> None:
        self.env: dict[Any, tuple[str, str]] = {}
        self.out: list[str] = []
        self.consts: dict[str, Any] = {}
        self.depth, self.names, self.site, self.mask = 1, 0, 0, "None"
        self.on_device = False  # or still in front of the launch
        self.vector: tuple[Any, int] | None = None
        self.granule = 16
        self.made_of_registers: set[Any] = set()  # variables; `<name>_u` says of which threads without a value
        self.written: set[str] = set()  # names of tensors and tensor maps that the launch writes through
        self.viewed: dict[str, str] = {}  # tensor declared again -> the one whose memory it has
        self.places: dict[Any, int] = {}  # shared buffer -> its address, where static
        self.named: dict[int, set[str]] = {}  # statement -> shared buffers that it names
        self.views: list[tuple[int, int, str]] = []  # (first, end, name) of shared buffers, for reports

    def emit(self, text: str) -> None:
        self.out.append("    " * self.depth + text)

    def fresh(self, name: str) -> str:
        self.names += 1
        return "".join(c if c.isascii() and c.isalnum() else "_" for c in name) + f"_{self.names}"

    def bind(self, var: Any, src: str, kind: str) -> None:
        name = self.fresh(var.name)
        self.emit(f"{name} = {src}")
        self.env[var] = name, kind

    def const(self, value: Any) -> str:
        name = f"K{len(self.consts)}"
        self.consts[name] = value
        return name

    def dtype(self, dt: Any) -> str:
        name = f"D_{dt}"
        self.consts[name] = np_dtype(dt)
        return name

    # --- what an expression contains
    def _children(self, e: Any) -> list[Any]:
        t = type(e).__name__
        if t == "Call":
            return list(e.args)
        if t == "TensorLoad":
            return list(e.indices)
        names = ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride", "body")
        return [x for x in (getattr(e, n, None) for n in names) if x is not None and hasattr(x, "ty")]

    def has_op(self, e: Any, names: set[str]) -> bool:
        if getattr(getattr(e, "op", None), "name", "").removeprefix("tl.dev.") in names:
            return True
        return any(self.has_op(x, names) for x in self._children(e))

    def reads_registers(self, e: Any) -> bool:
        """Is it made of registers, directly or through variables?"""
        if e in self.made_of_registers or (type(e).__name__ == "TensorLoad" and self.scope(e.source) == "l"):
            return True
        return any(self.reads_registers(x) for x in self._children(e))

    def note_use(self, e: Any) -> None:
        """The value decides something: it must have been written."""
        if self.reads_registers(e):
            self.emit(f"if G.unset is not None: use(G, {self.mask}, {self.site})")

    def has_effects(self, e: Any) -> bool:
        """Does it call a device op (other than one on plain values)?"""
        if getattr(getattr(e, "op", None), "name", "").startswith("tl.dev."):
            return True
        return any(self.has_effects(x) for x in self._children(e))

    def touches(self, e: Any) -> bool:
        """Does its value depend on when and by whom it is evaluated: loads and calls of device ops?"""
        return (
            type(e).__name__ == "TensorLoad" or self.has_effects(e) or any(self.touches(x) for x in self._children(e))
        )

    def observes(self, e: Any) -> bool:
        """May its value change through others: loads outside registers, calls of device ops?"""
        if type(e).__name__ == "TensorLoad" and self.scope(e.source) != "l":
            return True
        return self.has_effects(e) or any(self.observes(x) for x in self._children(e))

    # --- expressions
    def ex(self, e: Any) -> tuple[str, str]:
        t = type(e).__name__
        if t in ("IntImm", "FloatImm"):
            return self.literal(e), "u"
        if t == "StringImm":
            return repr(str(e.value)), "u"
        if t == "Var":
            if e not in self.env:
                raise SimUnsupported(f"{e.name} is used before it is defined")
            if e in self.made_of_registers:
                self.emit(f"if {self.env[e][0]}_u is not None: G.remember({self.env[e][0]}_u)")
            return self.env[e]
        if t in _BINARY or t in _FUNCTIONS:
            return self.binary(t, e, e.a, e.b)
        handler = getattr(self, "ex_" + t, None)
        if handler is None:
            raise SimUnsupported(f"the simulator has no meaning for the expression {t}: {e}")
        return handler(e)

    def src(self, e: Any) -> str:
        return self.ex(e)[0]

    def literal(self, e: Any) -> str:
        dt = np_dtype(e.ty.dtype)
        if dt.kind == "b":
            return str(bool(e.value))
        if dt.kind in "iu":
            v = int(e.value)
            return f"({v})" if v < 0 else str(v)
        value = float(e.value)
        return self.const(to_float8(value, dt.name)[()] if is_float8(dt.name) else np.float64(value).astype(dt))

    def contracted(self, t: str, e: Any) -> tuple[str, str] | None:
        """A sum with a product in it, of two the left one, rounded once: as ptxas 13.0 does it for a product that has
        no other use. None for another expression."""
        if t not in ("Add", "Sub") or str(e.ty.dtype) != "float32":
            return None
        left = type(e.a).__name__ == "Mul"
        product, other = (e.a, e.b) if left else (e.b, e.a)
        if type(product).__name__ != "Mul":
            return None
        parts = [self.ex(x) for x in ((product.a, product.b, other) if left else (other, product.a, product.b))]
        x, y, z = (text for text, _ in (parts if left else [*parts[1:], parts[0]]))
        kind = max(k for _, k in parts)
        if t == "Sub":
            x, z = (x, f"-{z}") if left else (f"-{x}", z)
        return f"contract({x}, {y}, {z})", kind

    def binary(self, t: str, e: Any, x: Any, y: Any) -> tuple[str, str]:
        if (fused := self.contracted(t, e)) is not None:
            return fused
        (a, ka), (b, kb) = self.ex(x), self.ex(y)
        kind = max(ka, kb)
        if t in _DIVISIONS and np_dtype(e.ty.dtype).kind in "iu" and not const_int(y):
            return self.division(t, e, a, b, kind)
        if t in _FUNCTIONS:
            return f"{_FUNCTIONS[t]}({a}, {b})", kind
        text = f"({a} {_BINARY[t]} {b})"
        if kind == "u" and t in _WRAPPING[np_dtype(e.ty.dtype).kind]:
            text = f"wrap({text}, {self.dtype(e.ty.dtype)})"
        return text, kind

    def division(self, t: str, e: Any, a: str, b: str, kind: str) -> tuple[str, str]:
        """An integer division by a value of the run."""
        text = f"{_DIVISIONS[t]}({a}, {b if self.on_device else f'nonzero({b})'})"
        return (f"wrap({text}, {self.dtype(e.ty.dtype)})" if kind == "u" else text), kind

    def ex_Cast(self, e: Any) -> tuple[str, str]:
        a, kind = self.ex(e.value)
        return f"cast({a}, {self.dtype(e.ty.dtype)})", kind

    def ex_Not(self, e: Any) -> tuple[str, str]:
        a, kind = self.ex(e.a)
        return (f"(not {a})" if kind == "u" else f"np.logical_not({a})"), kind

    def ex_BitwiseNot(self, e: Any) -> tuple[str, str]:
        a, kind = self.ex(e.a)
        if kind == "u":
            return f"wrap(~{a}, {self.dtype(e.ty.dtype)})", kind
        return f"(~{a})", kind

    def under(self, condition: str, e: Any) -> tuple[str, str]:
        """`e` evaluated only where `condition` (a name) holds."""
        if not self.touches(e):
            return self.ex(e)
        old, self.mask = self.mask, self.fresh("q")
        self.emit(f"{self.mask} = G.lazily({old}, {condition})")
        got = self.ex(e)
        self.mask = old
        return got

    def ex_And(self, e: Any) -> tuple[str, str]:
        return self.logical(e, "and", "&", "{}")

    def ex_Or(self, e: Any) -> tuple[str, str]:
        return self.logical(e, "or", "|", "np.logical_not({})")

    def logical(self, e: Any, word: str, sign: str, negated: str) -> tuple[str, str]:
        a, ka = self.ex(e.a)
        if self.touches(e.b):
            name = self.fresh("c")
            self.emit(f"{name} = {a}")
            a = name
            gate = self.fresh("c")
            self.emit(f"{gate} = {negated.format(name)}")
            b, kb = self.under(gate, e.b)
        else:
            b, kb = self.ex(e.b)
        kind = max(ka, kb)
        return (f"({a} {word} {b})" if kind == "u" else f"(np.asarray({a}) {sign} {b})"), kind

    def choose(self, condition: Any, then: Any, orelse: Any) -> tuple[str, str]:
        c, kc = self.ex(condition)
        if self.touches(then) or self.touches(orelse):
            name, other = self.fresh("c"), self.fresh("c")
            self.emit(f"{name} = {c}")
            self.emit(f"{other} = np.logical_not({name})")
            c = name
            (a, ka), (b, kb) = self.under(name, then), self.under(other, orelse)
        else:
            (a, ka), (b, kb) = self.ex(then), self.ex(orelse)
        kind = max(kc, ka, kb)
        return (
            f"({a} if {c} else {b})" if kind == "u" else f"select({c}, {a}, {b}, {self.dtype(then.ty.dtype)})"
        ), kind

    def ex_Select(self, e: Any) -> tuple[str, str]:
        return self.choose(e.condition, e.true_value, e.false_value)

    def ex_Let(self, e: Any) -> tuple[str, str]:
        self.bind(e.var, *self.ex(e.value))
        return self.ex(e.body)

    def ex_Ramp(self, e: Any) -> tuple[str, str]:
        lanes = int(e.lanes)
        return f"({self.src(e.base)} + {self.src(e.stride)} * np.arange({lanes}, dtype=np.int32)[:, None])", "v"

    def ex_Broadcast(self, e: Any) -> tuple[str, str]:
        return self.ex(e.value)

    def ex_TensorLoad(self, e: Any) -> tuple[str, str]:
        return self.access("ld", e.source, list(e.indices)), "v"

    def ex_Call(self, e: Any) -> tuple[str, str]:
        name = e.op.name
        if name.startswith("tl.dev."):
            return self.device_op(e), "v"
        short = name.split(".", 1)[1] if "." in name else name
        handler = getattr(self, "call_" + short, None)
        if handler is not None:
            return handler(e)
        if short in _BINARY_CALLS:
            sign = {v: k for k, v in _BINARY.items()}[_BINARY_CALLS[short]]
            return self.binary(sign, e, e.args[0], e.args[1])
        if short in INTRINSICS:
            return self.intrinsic(short, list(e.args))
        raise SimUnsupported(f"the simulator has no meaning for {name}: {e}")

    def intrinsic(self, name: str, args: list[Any]) -> tuple[str, str]:
        parts = [self.ex(a) for a in args]
        return f"INTRINSICS[{name!r}]({', '.join(p[0] for p in parts)})", max((p[1] for p in parts), default="u")

    def call_popcount(self, e: Any) -> tuple[str, str]:
        """Bits of a number depend on its width, which numbers of Python have not got."""
        x, kind = self.ex(e.args[0])
        return f"INTRINSICS[{e.op.name.split('.')[1]!r}](np.asarray({x}, {self.dtype(e.args[0].ty.dtype)}))", kind

    call_clz = call_popcount

    def call_call_pure_extern(self, e: Any) -> tuple[str, str]:
        function = str(e.args[0].value)
        if function == "printf":
            values = ", ".join(self.src(x) for x in list(e.args)[2:])
            return f"print_lines(G, {self.mask}, {str(e.args[1].value)!r}, [{values}])", "u"
        if function not in _EXTERN:
            name = function.removeprefix("tl_user_")
            raise SimUnsupported(f"the simulator does not read CUDA: it cannot call {name}; run it with target='cuda'")
        return self.intrinsic(_EXTERN[function], list(e.args)[1:])

    call_call_extern = call_call_pure_extern

    def call_if_then_else(self, e: Any) -> tuple[str, str]:
        return self.choose(*e.args)

    def call_reinterpret(self, e: Any) -> tuple[str, str]:
        x, kind = self.ex(e.args[0])
        return f"reinterpret({x}, {self.dtype(e.args[0].ty.dtype)}, {self.dtype(e.ty.dtype)})", kind

    def call_infinity(self, e: Any) -> tuple[str, str]:
        return self.const(np_dtype(e.ty.dtype).type(np.inf)), "u"

    def call_tvm_storage_sync(self, e: Any) -> tuple[str, str]:
        name = "syncwarp" if str(e.args[0].value) == "warp" else "sync_threads"
        return self.call_meaning(name, {}, {}), "v"

    def call_tvm_stack_alloca(self, e: Any) -> tuple[str, str]:
        return "TensorMap()", "u"

    def call_buffer_data(self, e: Any) -> tuple[str, str]:
        return self.pointer(e.args[0], None)

    def call_address_of(self, e: Any) -> tuple[str, str]:
        x = e.args[0]
        if type(x).__name__ == "Var":
            return self.pointer(x, None) if tirx.is_buffer_var(x) else self.ex(x)
        return self.pointer(x.source, list(x.indices))

    def call_tvm_access_ptr(self, e: Any) -> tuple[str, str]:
        data, kind = self.ex(e.args[1])
        offset, k = self.ex(e.args[2])
        size = np_dtype(e.args[0].ty.dtype).itemsize
        return f"offset({data}, {offset}, {size})", max(kind, k)

    # --- memory
    def scope(self, buf: Any) -> str:
        scope = str(buf.ty.storage_scope)
        if scope.startswith("shared"):
            return "s"
        return "l" if scope.startswith("local") else "g"

    def size_of(self, buf: Any) -> tuple[int, int]:
        """(elements, bytes of one) of an on-chip buffer."""
        return int(np.prod([int(x) for x in buf.ty.shape], dtype=np.int64)), np_dtype(buf.ty.dtype).itemsize

    def flat(self, buf: Any, indices: list[Any]) -> tuple[str, str]:
        """Flat element index of an on-chip buffer."""
        shape, strides = [int(x) for x in buf.ty.shape], list(buf.ty.strides or [])
        parts, kind = [], "u"
        for i, ix in enumerate(indices):
            s, k = self.ex(ix)
            kind = max(kind, k)
            n = int(strides[i]) if strides else int(np.prod(shape[i + 1 :], dtype=np.int64))
            parts.append(s if n == 1 else f"{s} * {n}")
        return "(" + " + ".join(parts) + ")", kind

    def address(self, buf: Any, index: str) -> str:
        return f"({self.env[buf][0]} + {index} * {self.size_of(buf)[1]})"

    def pointer(self, buf: Any, indices: list[Any] | None) -> tuple[str, str]:
        if buf not in self.env:
            raise SimUnsupported(f"{buf.name} is used before it is declared")
        name, scope = self.env[buf][0], self.scope(buf)
        if scope == "g":
            index = f"{name}.flat(({', '.join(self.src(i) for i in indices)},))" if indices else "0"
            return f"Pointer({name}, {index})", "v"
        index, kind = self.flat(buf, indices) if indices else ("0", "u")
        if scope == "s":
            self.named.setdefault(self.site, set()).add(str(buf.name))
        return (self.address(buf, index), kind) if scope == "s" else (f"Pointer({name}, {index})", kind)

    def width(self, indices: list[Any]) -> int:
        """Elements that one vector access moves, when this is one (unit stride in the vectorised variable)."""
        if len(indices) and type(indices[-1]).__name__ == "Ramp":
            return int(indices[-1].lanes) if str(indices[-1].stride) == "1" else 1
        if self.vector is None:
            return 1
        var, n = self.vector
        if any(_slope(i, var) != 0 for i in indices[:-1]) or _slope(indices[-1], var) != 1:
            return 1
        return n

    def access(self, verb: str, buf: Any, indices: list[Any], value: str = "") -> str:
        """A load or store by the scope of the buffer."""
        if buf not in self.env:
            raise SimUnsupported(f"{buf.name} is used before it is declared")
        name, scope, value = self.env[buf][0], self.scope(buf), f"{value}, " if value else ""
        vector = self.width(indices)
        if scope == "g":
            index = f"({', '.join(self.src(i) for i in indices)},)"
            if verb == "st":
                self.note_written(name)
            return f"{verb}g(G, {name}, {index}, {value}{self.mask}, {vector}, {self.site})"
        index = self.flat(buf, indices)[0]
        if scope == "l":
            return f"{verb}l(G, {name}, {index}, {value}{self.mask}, {self.site})"
        n, size = self.size_of(buf)
        self.named.setdefault(self.site, set()).add(str(buf.name))
        self.granule = min(self.granule, vector * size)
        place = f"{self.dtype(buf.ty.dtype)}, {name}, {name} + {n * size}"
        return f"{verb}s(G, {self.address(buf, index)}, {value}{self.mask}, {place}, {vector}, {self.site})"

    def declare(self, buf: Any, data: Any) -> None:
        """A buffer declared on the memory of another, or at an address."""
        if getattr(getattr(data, "op", None), "name", "") == "tirx.reinterpret":
            shape, strides = (f"[{', '.join(self.ex(n)[0] for n in dims)}]" for dims in (buf.ty.shape, buf.ty.strides))
            what = f"{shape}, {strides}, {self.dtype(buf.ty.dtype)}, {buf.name!r}"
            self.bind(buf, f"at_address(G, {self.site}, {self.ex(data.args[0])[0]}, {what})", "u")
            return
        base, kind = self.ex(data)
        offset = self.src(buf.ty.elem_offset) if getattr(buf.ty, "elem_offset", None) is not None else "0"
        scope, dtype = self.scope(buf), self.dtype(buf.ty.dtype)
        if scope == "s":
            self.bind(buf, f"{base} + {offset} * {np_dtype(buf.ty.dtype).itemsize}", kind)
            self.place(buf, data)
        elif scope == "g":
            shape, strides = (f"[{', '.join(self.src(x) for x in xs)}]" for xs in (buf.ty.shape, buf.ty.strides or []))
            below = re.match(r"Pointer\((\w+)", base)
            self.bind(
                buf, f"{base}.target.view({shape}, {strides}, {dtype}, {base}.index + {offset}, {buf.name!r})", "u"
            )
            if below is not None:
                self.viewed[self.env[buf][0]] = self.viewed.get(below[1], below[1])
        else:
            self.bind(buf, f"local_view({base}, {dtype}, {offset}, {self.size_of(buf)[0]}, {buf.name!r})", "u")

    def place(self, buf: Any, data: Any) -> None:
        """Notes where a view lies, so that reports can name it."""
        parent = data.args[0] if type(data).__name__ == "Call" else data
        offset = getattr(buf.ty, "elem_offset", None)
        if parent in self.places and (offset is None or isinstance(offset, tirx.IntImm)):
            n, size = self.size_of(buf)
            self.places[buf] = self.places[parent] + (0 if offset is None else int(offset)) * size
            self.views.append((self.places[buf], self.places[buf] + n * size, str(buf.name)))

    # --- device ops
    def device_op(self, e: Any) -> str:
        op = DeviceOp.from_node(e)
        assert op is not None
        operands = {}
        for operand in op.form.operands:
            operands[operand.name] = self.src(op.operands[operand.name])
            if operand.kind in (Kind.GMEM, Kind.TMAP) and operand.name in _written_through(op):
                self.note_written(operands[operand.name])
            if operand.kind is Kind.SMEM:
                self.note_shared(op)
        return self.call_meaning(op.name, op.statics, operands)

    def note_written(self, target: str) -> None:
        """The launch writes to global memory through a name, or an expression with one."""
        found = re.match(r"(?:Pointer\()?(\w+)", target)
        name = found[1] if found else ""
        self.written.add(self.viewed.get(name, name))

    def note_shared(self, op: Any) -> None:
        """Atomics on shared memory may be narrower than everything else."""
        dtype = op.statics.get("dtype")
        if dtype and op.name.startswith("atomic"):
            self.granule = min(self.granule, np_dtype(dtype).itemsize)
        if op.name == "cp_async":
            self.granule = min(self.granule, int(op.statics["bytes"]))

    def call_meaning(self, name: str, statics: Any, operands: Any) -> str:
        meaning = MEANINGS.get(name)
        if meaning is None:
            raise SimUnsupported(f"the simulator has no meaning for the device op {name}")
        function = f"OP_{name}"
        self.consts[function] = meaning.run
        args = ["G", self.mask, str(self.site)]
        args += [f"{k}={v}" for k, v in operands.items()] + [f"{k}={v!r}" for k, v in statics.items()]
        call = f"{function}({', '.join(args)})"
        return f"(yield from {call})" if meaning.blocks else call


def _written_through(op: DeviceOp) -> set[str]:
    """Operands through which an op writes to memory."""
    return {e.operand for e in op.effects if isinstance(e, Access) and e.mode is not Mode.READ}


def _slope(e: Any, var: Any) -> int | None:
    """Coefficient of var in an affine expression; None when it is not affine in it."""
    t = type(e).__name__
    if t == "Var":
        return 1 if e.same_as(var) else 0
    if t in ("IntImm", "FloatImm"):
        return 0
    if t in ("Add", "Sub"):
        a, b = _slope(e.a, var), _slope(e.b, var)
        return None if a is None or b is None else a + b if t == "Add" else a - b
    if t == "Mul":
        a, b = _slope(e.a, var), _slope(e.b, var)
        if a == 0 and b == 0:
            return 0
        for slope, factor in ((a, e.b), (b, e.a)):
            if slope is not None and type(factor).__name__ == "IntImm":
                return slope * int(factor.value)
        return None
    kids = [getattr(e, n) for n in ("a", "b", "value", "condition", "true_value", "false_value") if hasattr(e, n)]
    if t == "Call":
        kids = list(e.args)
    if t == "TensorLoad":
        kids = list(e.indices)
    if kids and all(_slope(k, var) == 0 for k in kids if hasattr(k, "ty")):
        return 0
    return None
