# SPDX-License-Identifier: Apache-2.0
"""What a well-formed program is, level by level, as code that runs.

`verify(func, level)` lists what is wrong, empty for a well-formed function; `check` raises InternalError instead. A
rule is a function that yields complaints; the tables at the end say which rules hold at which level (decision 001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs, walk
from tilelang.ir.device_ops import DEVICE_OPS
from tilelang.ir.sites import Program, Site, axis_of, is_complete, is_launch, is_parallel, tile_op_name
from tilelang.ir.stmts import as_list, bodies, const_int, dtype_of
from tilelang.ir.tile_ops import TILE_OPS
from tilelang.layout import loads
from tilelang.support.errors import InternalError

__all__ = ["LEVELS", "check", "tile_code", "verify"]

LEVELS = (1, 2, 3, 4)


def verify(func: tirx.PrimFunc, level: int) -> list[str]:
    """What keeps `func` from being a well-formed program of `level` (1 tile, 2 laid out, 3 scheduled, 4 device)."""
    program = Program(func)
    return [f"{rule.__name__.removeprefix('_')}: {text}" for rule in RULES[level] for text in rule(program)]


def check(func: tirx.PrimFunc, level: int, stage: str = "") -> None:
    """Raises InternalError with every complaint of `verify`."""
    found = verify(func, level)
    if found:
        raise InternalError(f"not a well-formed level-{level} program:\n  " + "\n  ".join(found), stage=stage)


def tile_code(func: tirx.PrimFunc) -> str:
    """What of a tile program is left in a function, "" for one of the device."""
    return next(_no_tile_code(Program(func)), "")


Rule = Callable[[Program], Iterator[str]]


def _extents(region: Any) -> list[Any]:
    return [r.extent for r in region.region]


def _squeezed(region: Any) -> list[Any]:
    return [e for e in _extents(region) if const_int(e) != 1]


def _differ(a: Any, b: Any) -> bool:
    """Are two extents known to be different."""
    x, y = const_int(a), const_int(b)
    return x is not None and y is not None and x != y


def _misfit(a: list[Any], b: list[Any]) -> bool:
    return len(a) != len(b) or any(_differ(x, y) for x, y in zip(a, b, strict=True))


# Rules of every level.


def _function_form(p: Program) -> Iterator[str]:
    """s_tir functions that contain a launch."""
    if not (p.func.attrs or {}).get("s_tir", False):
        yield "the function lacks s_tir=True"
    if not any(is_launch(s.stmt) for s in p.sites):
        yield "no kernel launch"


def _unique_names(p: Program) -> Iterator[str]:
    """Passes may key facts by the name of a buffer. Several launches may declare one view of a tensor."""
    seen: dict[str, Any] = {}
    for buffer in p.declared:
        if not seen.setdefault(buffer.name, buffer).same_as(buffer):
            yield f"two buffers are called {buffer.name}"


def _defined_before_use(p: Program) -> Iterator[str]:
    """A declaration reaches the rest of its list and what is nested there."""

    def visit(stmts: list[Any], scope: frozenset[Any]) -> Iterator[str]:
        known = set(scope)
        for stmt in stmts:
            used = [v for v in walk.collect(_own_expressions(stmt), ir.Var) if v not in known]
            for name in dict.fromkeys(v.name for v in used):
                yield f"{name} is used before its definition in {Site(stmt, ()).place}"
            known |= set(used)  # once is enough
            if isinstance(stmt, tirx.Bind):
                known.add(stmt.var)
            elif isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer):
                known.add(stmt.buffer)
            inner = frozenset(known | _defined_inside(stmt))
            for body in bodies(stmt):
                yield from visit(body, inner)

    symbols = {v for b in p.func.params if walk.is_buffer(b) for v in _symbols(b)}
    yield from visit(as_list(p.func.body), frozenset({*p.func.params, *symbols}))


def _defined_once(p: Program) -> Iterator[str]:
    """Code generation holds what it knows of a variable by the variable alone."""
    seen = set()
    for site in p.sites:
        var = getattr(site.stmt, "var" if isinstance(site.stmt, tirx.Bind) else "loop_var", None)
        if var is None:
            continue
        if var in seen:
            yield f"{var.name} is defined twice, the second time in {site.place}"
        seen.add(var)


def _symbols(buffer: Any) -> set[Any]:
    return {v for e in [*buffer.ty.shape, *buffer.ty.strides] for v in walk.vars_in(e)}


def _defined_inside(stmt: Any) -> set[Any]:
    if isinstance(stmt, tirx.For):
        return {stmt.loop_var}
    return {stmt.node.var} if is_launch(stmt) else set()


def _own_expressions(stmt: Any) -> list[Any]:
    """The expressions of a statement itself, not those of its bodies; buffers that it accesses count."""
    match stmt:
        case tirx.Bind() | tirx.Evaluate():
            return [stmt.value]
        case tirx.BufferStore():
            return [stmt.buffer, stmt.value, *stmt.indices]
        case tirx.IfThenElse() | tirx.While() | tirx.AssertStmt():
            return [stmt.condition]
        case tirx.For():
            return [stmt.min, stmt.extent]
        case tirx.DeclBuffer():
            return [stmt.data]
        case tirx.AttrStmt():
            return [stmt.value] if isinstance(stmt.value, ir.Expr) else []
        case _:
            return []


def _spans(p: Program) -> Iterator[str]:
    """Every statement knows the user's line."""
    missing = [s for s in p.sites if s.stmt.span is None]
    if missing:
        kinds = sorted({type(s.stmt).__name__ for s in missing})
        yield f"{len(missing)} statements have no span ({', '.join(kinds)})"


def _launch_form(p: Program) -> Iterator[str]:
    """blockIdx axes stand outside of threadIdx axes; nothing is allocated on chip outside of a launch."""
    for s in p.sites:
        if axis_of(s.stmt).startswith("blockIdx") and s.inside(lambda x: axis_of(x).startswith("threadIdx")):
            yield f"{axis_of(s.stmt)} inside of a threadIdx axis"
        on_chip = isinstance(s.stmt, tirx.AllocBuffer) and s.stmt.buffer.ty.storage_scope != attrs.GLOBAL
        if on_chip and not s.inside(is_launch):
            yield f"{s.stmt.buffer.name} is allocated on chip outside of a launch"


def _device_ops_known(p: Program) -> Iterator[str]:
    """A call of ours is a row of a table."""
    for call in walk.collect(p.func.body, ir.Call):
        name = getattr(call.op, "name", "")
        if name.startswith(attrs.DEVICE_OP_PREFIX) and name.removeprefix(attrs.DEVICE_OP_PREFIX) not in DEVICE_OPS:
            yield f"{name} is not in the device-op table"
        elif name.startswith("tl.") and not name.startswith((attrs.DEVICE_OP_PREFIX, attrs.TILE_OP_PREFIX)):
            yield f"{name} is neither a tile op nor a device op"


# Rules of levels 1 to 3.

_TILE_SCOPES = frozenset({attrs.GLOBAL, attrs.BARRIER_SCOPE}) | attrs.SHARED_SCOPES | attrs.REGISTER_SCOPES


def _tile_scopes(p: Program) -> Iterator[str]:
    """Scopes that some pass knows."""
    for b in p.declared:
        if b.ty.storage_scope not in _TILE_SCOPES:
            yield f"{b.name} has the unknown scope {b.ty.storage_scope!r}"
        if b.ty.storage_scope == attrs.VAR and [const_int(s) for s in b.ty.shape] != [1]:
            yield f"the variable {b.name} has not one element"


def _tile_ops_known(p: Program) -> Iterator[str]:
    """Names, operand counts, operand kinds and attributes are those of the table."""
    for s in p.sites:
        name = tile_op_name(s.stmt)
        if name is None:
            continue
        if name not in TILE_OPS:
            yield f"unknown tile op {name}"
            continue
        row, call = TILE_OPS[name], s.stmt.value
        if not is_complete(s.stmt):
            yield f"{name} has {len(call.args)} operands, not {len(row.operands)}"
            continue
        for (operand, access), arg in zip(row.operands.items(), call.args, strict=True):
            if isinstance(arg, ir.TensorRegion) == (access.value == "value"):
                yield f"{name}: operand {operand} should be a {'value' if access.value == 'value' else 'region'}"
        unknown = set(call.attrs.keys() if call.attrs is not None else ()) - set(row.attrs)
        if unknown:
            yield f"{name} has unknown attributes {sorted(unknown)}"


def _parallel_form(p: Program) -> Iterator[str]:
    """T.Parallel: an annotated nest of scalar code."""
    covered: set[int] = set()
    for s in p.sites:
        if is_parallel(s.stmt):
            if id(s.stmt) in covered:
                continue
            count = const_int((s.stmt.annotations or {}).get(attrs.PARALLEL))
            if s.inside(is_parallel):
                yield f"T.Parallel inside of T.Parallel: {s.place}"
            elif count is None:
                yield f"a parallel loop lacks {attrs.PARALLEL}: {s.place}"
            at = s.stmt
            for _ in range((count or 1) - 1):
                at = at.body
                if not is_parallel(at):
                    yield f"a nest of {count} parallel loops has fewer: {s.place}"
                    break
            covered |= _nest_ids(p, s.stmt, count or 1)
        elif tile_op_name(s.stmt) is not None and s.inside(is_parallel):
            yield f"tile op {tile_op_name(s.stmt)} inside of T.Parallel: {s.place}"


def _nest_ids(p: Program, outer: Any, count: int) -> set[int]:
    """Identities of the inner loops of a nest, as the sites know them."""
    inside = [s for s in p.sites if is_parallel(s.stmt) and any(x is outer for x in s.parents)]
    return {id(s.stmt) for s in inside if sum(is_parallel(x) for x in s.parents) < count}


def _copy_operands(p: Program) -> Iterator[str]:
    for s, op in p.tile_ops:
        if op.name in ("copy", "cumulate") and _misfit(_squeezed(op["src"]), _squeezed(op["dst"])):
            yield f"{op.name} from {_extents(op['src'])} to {_extents(op['dst'])}: {s.place}"


def _gemm_operands(p: Program) -> Iterator[str]:
    for s, op in p.tile_ops:
        if op.name != "gemm":
            continue
        for k in "ab":
            if op[k].source.ty.storage_scope not in attrs.SHARED_SCOPES | {attrs.FRAGMENT}:
                yield f"gemm operand {k} is in {op[k].source.ty.storage_scope}: {s.place}"
        if op["c"].source.ty.storage_scope != attrs.FRAGMENT:
            yield f"gemm accumulator is in {op['c'].source.ty.storage_scope}: {s.place}"
        a, b, c = (_extents(op[k])[-2:] for k in "abc")
        m, ka = reversed(a) if op.attrs["trans_a"] else a
        kb, n = reversed(b) if op.attrs["trans_b"] else b
        if _misfit([m, n, ka], [*(reversed(c) if op.attrs["trans_c"] else c), kb]):
            yield f"gemm of {a} and {b} into {c}: {s.place}"
        if dtype_of(op["clear"]) != "bool":
            yield f"gemm: clear is no bool: {s.place}"


_KINDS = ("sum", "max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor")


def _reduce_operands(p: Program) -> Iterator[str]:
    for s, op in p.tile_ops:
        if op.name not in ("reduce", "cumulate"):
            continue
        extents, dim = _extents(op["src"]), op.attrs["dim"]
        if op.attrs["kind"] not in _KINDS:
            yield f"{op.name} of kind {op.attrs['kind']!r}: {s.place}"
        if not -len(extents) <= dim < len(extents):
            yield f"{op.name} along {dim} of {len(extents)} dimensions: {s.place}"
        elif op.name == "reduce":
            kept = [e for i, e in enumerate(extents) if i != dim % len(extents) and const_int(e) != 1]
            if _misfit(kept, _squeezed(op["dst"])):
                yield f"reduce of {extents} along {dim} into {_extents(op['dst'])}: {s.place}"


_FACTS = {"copy": ("via",), "gemm": ("inst",)}


def _nothing_planned(p: Program) -> Iterator[str]:
    """The front end leaves the choice of instructions and layouts to passes."""
    for s, op in p.tile_ops:
        for fact in _FACTS.get(op.name, ()):
            if op.attrs[fact]:
                yield f"{op.name} has {fact}={op.attrs[fact]!r} already: {s.place}"
    for s in p.sites:
        if attrs.LAYOUT in (getattr(s.stmt, "annotations", None) or {}):
            yield f"a layout is chosen already: {s.place}"


def _pipelined_form(p: Program) -> Iterator[str]:
    for s in p.sites:
        stages = (getattr(s.stmt, "annotations", None) or {}).get(attrs.NUM_STAGES)
        if stages is None:
            continue
        if s.stmt.kind != tirx.ForKind.SERIAL:
            yield f"a pipelined loop is not serial: {s.place}"
        if const_int(stages) is None or int(stages) < 0:
            yield f"num_stages={stages}: {s.place}"
        if s.inside(is_parallel):
            yield f"a pipelined loop inside of T.Parallel: {s.place}"


# Rules from level 2 on.


def _planned(p: Program) -> Iterator[str]:
    """Every tile op has its instruction; elementwise ones are loops."""
    for s, op in p.tile_ops:
        for fact in _FACTS.get(op.name, ()):
            if not op.attrs[fact]:
                yield f"{op.name} has no {fact}: {s.place}"
        if op.name == "fill" or (op.name == "copy" and op.attrs["via"] == "loop"):
            yield f"an elementwise {op.name} is no T.Parallel nest: {s.place}"


def _laid_out(p: Program) -> Iterator[str]:
    """Fragments, shared tiles and T.Parallel nests carry a layout of their shape."""
    for s in p.sites:
        notes = getattr(s.stmt, "annotations", None) or {}
        if isinstance(s.stmt, tirx.AllocBuffer):
            buffer = s.stmt.buffer
            if buffer.ty.storage_scope not in attrs.SHARED_SCOPES | {attrs.FRAGMENT}:
                continue
            name, shape = buffer.name, [const_int(e) for e in buffer.ty.shape]
        elif is_parallel(s.stmt) and attrs.PARALLEL in notes:
            name, shape, at = "T.Parallel nest", [], s.stmt
            for _ in range(int(notes[attrs.PARALLEL])):
                shape.append(const_int(at.extent))
                at = at.body
        else:
            continue
        if attrs.LAYOUT not in notes:
            yield f"{name} has no layout: {s.place}"
            continue
        layout_shape = list(loads(str(notes[attrs.LAYOUT])).shape)
        if None not in shape and layout_shape != shape[len(shape) - len(layout_shape) :]:
            yield f"{name} of shape {shape} has a layout of shape {layout_shape}: {s.place}"


# Rules of level 4.

_DEVICE_SCOPES = frozenset({attrs.GLOBAL, attrs.SHARED_DYN, attrs.LOCAL})


def _device_scopes(p: Program) -> Iterator[str]:
    """Code generation takes an unknown scope for a local array, so none may be left."""
    arenas: dict[Any, list[Any]] = {}  # launch -> its own
    for s in p.sites:
        if not isinstance(s.stmt, tirx.AllocBuffer | tirx.DeclBuffer):
            continue
        buffer = s.stmt.buffer
        scope = buffer.ty.storage_scope
        if scope not in _DEVICE_SCOPES:
            yield f"{buffer.name} has the scope {scope!r}: {s.place}"
        if isinstance(s.stmt, tirx.AllocBuffer) and scope == attrs.SHARED_DYN:
            arenas.setdefault(next(filter(is_launch, s.parents), None), []).append(buffer)
    for arena in (a for found in arenas.values() for a in found[1:]):
        yield f"a second shared arena: {arena.name}"
    for arena in (found[0] for found in arenas.values()):
        if dtype_of(arena) != "uint8" or len(arena.ty.shape) != 1:
            yield f"the shared arena {arena.name} is not a flat uint8 array"


def _no_tile_code(p: Program) -> Iterator[str]:
    for s in p.sites:
        if tile_op_name(s.stmt) is not None:
            yield f"tile op {tile_op_name(s.stmt)} is left"
        if is_parallel(s.stmt):
            yield f"a parallel loop is left: {s.place}"


_ALWAYS: tuple[Rule, ...] = (_function_form, _defined_before_use, _defined_once, _launch_form, _device_ops_known)
_TILES: tuple[Rule, ...] = (
    _unique_names,
    _tile_scopes,
    _tile_ops_known,
    _parallel_form,
    _copy_operands,
    _gemm_operands,
    _reduce_operands,
)
RULES: dict[int, tuple[Rule, ...]] = {
    1: (*_ALWAYS, *_TILES, _spans, _nothing_planned, _pipelined_form),
    2: (*_ALWAYS, *_TILES, _planned, _laid_out, _pipelined_form),
    3: (*_ALWAYS, *_TILES, _planned, _laid_out),
    4: (*_ALWAYS, _device_scopes, _no_tile_code),
}
