# SPDX-License-Identifier: Apache-2.0
"""Level-4 PrimFunc -> Python source for the simulator: about one line of Python for one statement of the kernel.

`translate(func)` gives a module text with `host(P, REPORT)` (shapes, tensor maps, launch extents) and one generator
`kernel<i>(G, E, BLOCK)` for each launch. An expression is *uniform* ("u", a Python number, which never meets numpy) or
*varying* ("v", an array over the gang's threads). Divergence is a mask variable; a branch or loop whose body can
suspend tells the gang, which splits when its warps disagree. The text is readable: print it when debugging
(`Program.source`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.attrs import CLUSTER_DIMS
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.symbols import step_of
from tilelang.ir.walk import vars_in
from tilelang.sim.expressions import Expressions
from tilelang.sim.machine import BASE
from tilelang.sim.report import SimUnsupported
from tilelang.sim.table import BLOCKING
from tilelang.sim.values import np_dtype

__all__ = ["Launch", "Translation", "translate"]

_DEFAULT_GRANULE = 16


@dataclass
class Launch:
    """One kernel of a function."""

    body: Any
    axes: list[tuple[Any, str, Any]]  # (Var, thread tag, extent expression)


@dataclass
class Translation:
    """What `translate` gives: text, constants it names, source places, and static facts of the function."""

    text: str
    consts: dict[str, Any]
    sites: list[tuple[Any, Any]]  # (statement, span of it or of what encloses it)
    shared_bytes: int
    granule: int
    launches: int
    params: list[str] = field(default_factory=list)
    # shared buffers of each launch: (first address, end, name)
    views: list[list[tuple[int, int, str]]] = field(default_factory=list)
    named: dict[int, set[str]] = field(default_factory=dict)  # statement -> shared buffers that it names
    visible: list[str] = field(default_factory=list)  # names of what the host part hands to launches
    # of each launch: names that it writes through, None where some are unknown
    written: list[set[str] | None] = field(default_factory=list)


@dataclass
class _Loop:
    """An open loop: names of the masks of lanes still in it and still in this iteration."""

    alive: str
    current: str
    suspends: bool


def translate(func: Any) -> Translation:
    """Raises SimUnsupported when the function uses something without a meaning here."""
    return _Translator(func).run()


def _kids(s: Any) -> list[Any]:
    seq = getattr(s, "seq", None)
    kids = list(seq) if seq is not None else [getattr(s, f, None) for f in ("then_case", "else_case", "body")]
    return [x for x in kids if x is not None]


class _Translator(Expressions):
    def __init__(self, func: Any) -> None:
        super().__init__()
        self.func = func
        self.loops: list[_Loop] = []
        self.sites: list[tuple[Any, Any]] = []
        self.shared_bytes, self.granule, self.tail = 0, _DEFAULT_GRANULE, True
        self.span: Any = None
        self._suspends: dict[Any, bool] = {}
        self._leaves: dict[Any, bool] = {}

    # --- facts of statements
    def suspends(self, s: Any) -> bool:
        """Can this statement suspend the gang?"""
        key = s.__chandle__() if hasattr(s, "__chandle__") else id(s)
        if key not in self._suspends:
            self._suspends[key] = self.spins(s) or self.calls_blocking(s) or any(self.suspends(x) for x in _kids(s))
        return self._suspends[key]

    def spins(self, s: Any) -> bool:
        """Is it a loop that may wait for others: a While that looks at memory or calls device ops?"""
        return isinstance(s, tirx.While) and (self.observes(s.condition) or self.looks(s.body))

    def looks(self, s: Any) -> bool:
        parts = [getattr(s, f, None) for f in ("value", "condition", "min", "extent")]
        return any(p is not None and hasattr(p, "ty") and self.observes(p) for p in parts) or any(
            self.looks(x) for x in _kids(s)
        )

    def calls_blocking(self, s: Any) -> bool:
        parts = [getattr(s, f, None) for f in ("value", "condition")]
        return any(self.has_op(p, BLOCKING) for p in parts if p is not None)

    def leaves(self, s: Any) -> bool:
        """Does it contain a break, continue or return?"""
        key = s.__chandle__() if hasattr(s, "__chandle__") else id(s)
        if key not in self._leaves:
            inner = "returns" if isinstance(s, (tirx.For, tirx.While)) else "leaves"
            own = isinstance(s, (tirx.Break, tirx.Continue)) or self.returns(s)
            self._leaves[key] = own or any(getattr(self, inner)(x) for x in _kids(s))
        return self._leaves[key]

    def returns(self, s: Any) -> bool:
        return isinstance(s, tirx.Return) or self.is_return(s) or any(self.returns(x) for x in _kids(s))

    @staticmethod
    def is_return(s: Any) -> bool:
        name = (
            getattr(getattr(getattr(s, "value", None), "op", None), "name", "") if isinstance(s, tirx.Evaluate) else ""
        )
        return name in ("tirx.thread_return", "tirx.ret")

    # --- statements
    def block(self, s: Any, mask: str, tail: bool = False) -> None:
        old, self.mask, self.tail = self.mask, mask, tail
        self.depth += 1
        start = len(self.out)
        self.st(s)
        if len(self.out) == start:
            self.emit("pass")
        self.depth -= 1
        self.mask = old

    def st(self, s: Any) -> None:
        if isinstance(s, (tirx.SeqStmt, tirx.AttrStmt)):
            self.sequence(list(s.seq) if isinstance(s, tirx.SeqStmt) else [s.body])
            return
        outer = self.span
        self.span = getattr(s, "span", None) or outer
        self.sites.append((s, self.span))
        self.site = len(self.sites) - 1
        handler = getattr(self, "st_" + type(s).__name__, None)
        if handler is None:
            raise SimUnsupported(f"the simulator cannot run a {type(s).__name__} statement: {str(s)[:200]}")
        handler(s, self.tail)
        self.span = outer

    def sequence(self, kids: list[Any]) -> None:
        tail, depth, mask = self.tail, self.depth, self.mask
        for i, x in enumerate(kids):
            self.tail = tail and i == len(kids) - 1
            self.st(x)
            if self.loops and self.leaves(x) and i + 1 < len(kids):
                inner = self.loops[-1].current
                rest = self.fresh("m")
                self.emit(f"{rest} = G.meet({self.mask}, {inner})")
                self.emit(f"if {rest} is not None:")
                self.depth += 1
                self.mask = rest
        self.depth, self.mask = depth, mask

    def st_Bind(self, s: Any, tail: bool) -> None:
        src, kind = self.ex(s.value)
        if kind == "v" and type(s.value).__name__ in ("TensorLoad", "Call", "Let", "Var", "Select", "Cast"):
            src = f"own({src})"
        self.bind(s.var, src, kind)
        if self.reads_registers(s.value):
            self.made_of_registers.add(s.var)
            self.emit(f"{self.env[s.var][0]}_u = G.forget()")

    def st_Evaluate(self, s: Any, tail: bool) -> None:
        if self.is_return(s):
            self.leave(self.loops)
            return
        if type(s.value).__name__ not in ("Call",):
            return
        op = DeviceOp.from_node(s.value)
        if op is not None:
            self.emit("if G.preempt: yield")
        self.emit(self.ex(s.value)[0])
        self.note_use(s.value)

    def st_BufferStore(self, s: Any, tail: bool) -> None:
        value = self.ex(s.value)[0]
        self.emit(self.access("st", s.buffer, list(s.indices), value))

    def st_IfThenElse(self, s: Any, tail: bool) -> None:
        c, kind = self.ex(s.condition)
        if self.reads_registers(s.condition):
            decides = self.fresh("c")
            self.emit(f"{decides} = {c}")
            self.note_use(s.condition)
            c = decides
        orelse = s.else_case
        t = f = self.mask
        if kind == "v":
            last = tail and orelse is None and not self.loops  # nothing follows: the others are finished anyway
            splits = (self.suspends(s) and not last) or (self.leaves(s) and any(x.suspends for x in self.loops))
            t, f = self.fresh("m"), self.fresh("m")
            self.emit(f"{t}, {f} = G.branch({self.mask}, {c}, {splits})")
        self.emit(f"if {c}:" if kind == "u" else f"if {t} is not None:")
        self.block(s.then_case, t, tail and orelse is None)
        if orelse is not None:
            self.emit("else:" if kind == "u" else f"if {f} is not None:")
            self.block(orelse, f, tail and kind == "u")

    def watch_the_clock(self, mask: str) -> None:
        """Each round of a loop: the run may have a limit."""
        self.emit(f"    if clock() > G.deadline: G.late({mask}, {self.site})")

    def open_loop(self, s: Any) -> _Loop:
        loop = _Loop(self.fresh("alive"), self.fresh("now"), self.suspends(s))
        self.loops.append(loop)
        return loop

    def st_For(self, s: Any, tail: bool) -> None:
        (lo, k0), (n, k1) = self.ex(s.min), self.ex(s.extent)
        step = self.ex(s.step)[0] if getattr(s, "step", None) is not None else "1"
        if int(s.kind) == int(tirx.ForKind.VECTORIZED) and self.vectorisable(s.body):
            self.vector_loop(s, lo, n)
            return
        if int(s.kind) == int(tirx.ForKind.THREAD_BINDING):
            raise SimUnsupported("thread-binding loops are lowered before level 4")
        v = self.fresh(s.loop_var.name)
        varying = "v" in k0 + k1
        if not varying and not self.leaves(s.body):
            self.env[s.loop_var] = v, "u"
            self.emit(f"for {v} in range({lo}, {lo} + {n}, {step}):")
            self.watch_the_clock(self.mask)
            self.block(s.body, self.mask)
            return
        loop = self.open_loop(s.body)
        self.env[s.loop_var] = v, "v" if varying else "u"
        if varying:
            end = self.fresh("end")
            self.emit(f"{loop.alive}, {v} = {self.mask}, {lo}")
            self.emit(f"{end} = {v} + {n}")
            for bound in (s.min, s.extent):
                self.note_use(bound)
            self.emit("while True:")
            self.emit(f"    {loop.alive} = G.stay({loop.alive}, {v} < {end}, {loop.suspends})")
        else:
            self.emit(f"{loop.alive} = {self.mask}")
            self.emit(f"for {v} in range({lo}, {lo} + {n}, {step}):")
        self.emit(f"    if {loop.alive} is None: break")
        self.emit(f"    {loop.current} = {loop.alive}")
        self.watch_the_clock(loop.current)
        self.block(s.body, loop.current)
        if varying:
            self.emit(f"    {v} = {v} + {step}")
        self.loops.pop()

    def st_While(self, s: Any, tail: bool) -> None:
        loop = self.open_loop(s)
        self.emit(f"{loop.alive} = {self.mask}")
        self.emit("while True:")
        self.watch_the_clock(loop.alive)
        self.depth += 1
        old, self.mask = self.mask, loop.alive
        c, _ = self.ex(s.condition)
        if self.reads_registers(s.condition):
            decides = self.fresh("c")
            self.emit(f"{decides} = {c}")
            self.note_use(s.condition)
            c = decides
        self.mask = old
        self.emit(f"{loop.alive} = G.stay({loop.alive}, {c}, {loop.suspends})")
        self.emit(f"if {loop.alive} is None: break")
        self.emit(f"{loop.current} = {loop.alive}")
        self.depth -= 1
        site, spins = self.site, self.spins(s)
        self.block(s.body, loop.current)
        self.emit(f"    if {loop.alive} is None: break")
        if spins:
            self.emit(f"    yield G.spin({site})")
        self.loops.pop()

    def leave(self, loops: list[_Loop]) -> None:
        """The current lanes leave these loops."""
        for loop in loops:
            self.emit(f"{loop.alive} = G.minus({loop.alive}, {self.mask}, {loop.suspends})")
        for loop in {x.current: x for x in loops}.values():
            self.emit(f"{loop.current} = G.minus({loop.current}, {self.mask})")

    def st_Break(self, s: Any, tail: bool) -> None:
        self.leave(self.loops[-1:])

    def st_Continue(self, s: Any, tail: bool) -> None:
        loop = self.loops[-1]
        self.emit(f"{loop.current} = G.minus({loop.current}, {self.mask}, {loop.suspends})")

    def st_Return(self, s: Any, tail: bool) -> None:
        self.leave(self.loops)

    def st_AssertStmt(self, s: Any, tail: bool) -> None:
        c, kind = self.ex(s.condition)
        parts = "".join(str(getattr(p, "value", p)) for p in s.message_parts)
        failed = f"not {c}" if kind == "u" else f"not np.asarray({c})[{self.mask}].all()"
        self.emit(f"if {failed}: G.cta.trap('assert', {parts!r}, {self.site})")

    def st_DeclBuffer(self, s: Any, tail: bool) -> None:
        self.declare(s.buffer, s.data)

    def st_AllocBuffer(self, s: Any, tail: bool) -> None:
        buf = s.buffer
        scope, dtype = str(buf.ty.storage_scope), self.dtype(buf.ty.dtype)
        n = int(np.prod([int(x) for x in buf.ty.shape], dtype=np.int64))
        if scope.startswith("shared"):
            self.bind(buf, f"G.base + {BASE + self.shared_bytes}", "u")
            self.places[buf] = BASE + self.shared_bytes
            self.views.append((self.places[buf], self.places[buf] + n * np_dtype(buf.ty.dtype).itemsize, str(buf.name)))
            self.shared_bytes += (n * np_dtype(buf.ty.dtype).itemsize + 1023) & ~1023
        elif scope.startswith("local"):
            self.bind(buf, f"G.local({n}, {dtype}, {buf.name!r})", "u")
        else:
            raise SimUnsupported(f"allocation of {buf.name} in scope {scope!r}")

    def vectorisable(self, s: Any) -> bool:
        """May a vectorised loop run as one [lane, thread] access? Otherwise it runs as a serial loop."""
        if isinstance(s, tirx.SeqStmt):
            return all(self.vectorisable(x) for x in s.seq)
        return isinstance(s, (tirx.BufferStore, tirx.Bind)) and not self.has_effects(s.value)

    def vector_loop(self, s: Any, lo: str, n: str) -> None:
        v = self.fresh(s.loop_var.name)
        self.env[s.loop_var] = v, "v"
        self.vector = s.loop_var, int(s.extent) if isinstance(s.extent, tirx.IntImm) else 1
        self.emit(f"{v} = {lo} + np.arange({n}, dtype={self.dtype(s.loop_var.ty.dtype)})[:, None]")
        self.st(s.body)
        self.vector = None

    # --- the function
    def run(self) -> Translation:
        launches = self.host()
        self.on_device = True
        host, texts, views, most = ["def host(P, REPORT):", *self.out], [], [], 0
        names = [n for n, _ in self.env.values()]
        visible, written = ", ".join(names), []
        for i, launch in enumerate(launches):
            self.out, self.depth = [], 1
            self.written = set()
            self.shared_bytes, self.views = 0, []  # a launch has shared memory to itself
            self.emit(f"({visible},) = E")
            below = "1"
            for var, tag, n in sorted(launch.axes, key=lambda a: a[1]):
                thread = tag.startswith("threadIdx")
                self.bind(
                    var, *((f"G.tid // ({below}) % ({self.ex(n)[0]})", "v") if thread else (f"BLOCK[{tag!r}]", "u"))
                )
                below += f" * {self.ex(n)[0]}" if thread else ""
            self.emit("m0 = G.full")
            self.mask, self.tail = "m0", True
            if self.leaves(launch.body):
                self.loops.append(_Loop("alive0", "now0", True))
                self.emit("alive0 = now0 = m0")
            self.st(launch.body)
            self.loops.clear()
            self.emit("yield")  # a kernel without barriers is a generator too
            texts += [f"def kernel{i}(G, E, BLOCK):", *self.out, ""]
            views.append(self.views)
            written.append(self.written if self.written <= set(names) else None)
            most = max(most, self.shared_bytes)
        text = "\n".join([*host, "", *texts, ""])
        return Translation(
            text,
            self.consts,
            self.sites,
            most,
            self.granule,
            len(launches),
            [p.name for p in self.func.params],
            views,
            self.named,
            names,
            written,
        )

    def host(self) -> list[Launch]:
        """Emits the host part and returns the launches."""
        self.mask = "None"
        self.parameters(self.func.params)
        launches: list[Launch] = []
        for s in self.func.body.seq if isinstance(self.func.body, tirx.SeqStmt) else [self.func.body]:
            self.sites.append((s, getattr(s, "span", None)))
            self.site = len(self.sites) - 1
            self.host_stmt(s, launches)
        if not launches:
            raise SimUnsupported("the function has no launch (AttrStmt thread_extent)")
        visible = ", ".join(n for n, _ in self.env.values())
        extents = [f"{{{', '.join(f'{tag!r}: {self.ex(n)[0]}' for _, tag, n in x.axes)}}}" for x in launches]
        self.emit(f"return ({visible},), [{', '.join(extents)}]")
        return launches

    def host_stmt(self, s: Any, launches: list[Launch]) -> None:
        if isinstance(s, tirx.AttrStmt):
            launches.append(_launch_of(s))
        elif isinstance(s, tirx.Bind):
            self.bind(s.var, *self.ex(s.value))
        elif isinstance(s, tirx.DeclBuffer):
            self.declare(s.buffer, s.data)
        elif isinstance(s, tirx.AssertStmt):
            parts = "".join(str(getattr(p, "value", p)) for p in s.message_parts)
            self.emit(f"if not {self.ex(s.condition)[0]}: raise ValueError({parts!r})")
        elif (
            isinstance(s, tirx.Evaluate)
            and getattr(getattr(s.value, "op", None), "name", "") == "tirx.tensormap_encode_tiled"
        ):
            self.encode(s.value)
        elif isinstance(s, tirx.Evaluate) and type(s.value).__name__ != "Call":
            pass
        else:
            raise SimUnsupported(f"host statement before the launch: {str(s)[:200]}")

    def encode(self, call: Any) -> None:
        at, a = call.attrs, list(call.args)
        r = int(at["rank"])
        src = [self.ex(x)[0] for x in a]
        dims, strides, box, steps = (
            f"[{', '.join(x)}]"
            for x in (src[2 : 2 + r], src[2 + r : 1 + 2 * r], src[1 + 2 * r : 1 + 3 * r], src[1 + 3 * r : 1 + 4 * r])
        )
        size = np_dtype(at["descriptor_dtype"]).itemsize
        nan = bool(int(at["oob_fill"]))
        options = f"{int(at['swizzle'])}, {size}, REPORT, {nan}, {steps}"
        self.emit(f"{src[0]}.encode({src[1]}.target.data, {dims}, {strides}, {box}, {options})")

    def parameters(self, params: Sequence[Any]) -> None:
        """Binds parameters and the symbols in their shapes, and checks what they promise.

        A symbol that stands alone somewhere is read there; one that no tensor gives alone is solved for where it is
        the only unknown of an extent, in which it is linear.
        """
        extents: list[tuple[str, str, int, Any]] = []
        for p in params:
            if not tirx.is_buffer_var(p):
                self.bind(
                    p, f"scalar(P[{p.name!r}], {p.name!r}, {self.dtype(str(getattr(p.ty, 'dtype', 'handle')))})", "u"
                )
                continue
            self.bind(p, f"tensor(P[{p.name!r}], {p.name!r}, {len(p.ty.shape)}, {self.dtype(p.ty.dtype)})", "u")
            for what, values in (("shape", list(p.ty.shape)), ("strides", list(p.ty.strides or []))):
                extents += [(self.env[p][0], what, i, dim) for i, dim in enumerate(values)]
        for name, what, i, dim in extents:
            if type(dim).__name__ == "Var" and dim not in self.env:
                self.bind(dim, f"{name}.{what}[{i}]", "u")
        for name, what, i, dim in extents:
            unknown = [v for v in vars_in(dim) if v not in self.env]
            if len(unknown) == 1:
                self.solve(unknown[0], dim, f"{name}.{what}[{i}]")
        for name, what, i, dim in extents:
            self.emit(f"expect({name}, {what!r}, {i}, {self.ex(dim)[0]})")
        for p in params:
            if tirx.is_buffer_var(p) and not list(p.ty.strides or []):
                self.emit(f"expect_dense({self.env[p][0]})")

    def solve(self, var: Any, extent: Any, have: str) -> None:
        """Binds `var` so that a linear `extent` gets the value `have`; what remains is found by the check of it."""
        self.bind(var, "0", "u")
        name = self.env[var][0]
        self.emit(f"{name}_at_0 = {self.ex(extent)[0]}")
        step = step_of(extent)
        self.emit(f"{name} = {step}")
        self.emit(f"{name} = ({have} - {name}_at_0) * {step} // ({self.ex(extent)[0]} - {name}_at_0)")


def _launch_of(s: Any) -> Launch:
    axes = []
    while isinstance(s, tirx.AttrStmt):
        if s.attr_key == "thread_extent":
            tag = str(s.node.thread_tag)
            axes.append((s.node.var, tag, s.value))
        elif s.attr_key == CLUSTER_DIMS:
            axes += _cluster_axes(s)
        s = s.body
    clusters: list[Any] = []
    tvm_ffi.structural_walk(s, (tirx.AttrStmt, lambda a: clusters.append(a) if a.attr_key == CLUSTER_DIMS else None))
    return Launch(s, [*axes, *(axis for a in clusters for axis in _cluster_axes(a))])


def _cluster_axes(attr: Any) -> list[tuple[Any, str, Any]]:
    dims = str(attr.value.value).split(",") if isinstance(attr.value, ir.StringImm) else [str(int(attr.value))]
    sizes = zip((f"clusterCtaIdx.{d}" for d in "xyz"), dims, strict=False)
    return [(tirx.Var(tag[:-2], "int32"), tag, tirx.IntImm("int32", int(n))) for tag, n in sizes]
