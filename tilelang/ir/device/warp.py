# SPDX-License-Identifier: Apache-2.0
"""Rows on values and warps: shuffles, votes, ordering of computations, special registers."""

from __future__ import annotations

from tilelang.ir.device.effects import Convergence, Fence, Sync
from tilelang.ir.device.row import CTYPE, DeviceOpRow, Form, Operand, Static, asm, regs, value

__all__ = ["ROWS", "parse_registers"]

_WARP = Convergence.WARP
_ALL = "0xffffffffu"
_SHUFFLE_DTYPES = (
    "float32",
    "int32",
    "uint32",
    "float16",
    "bfloat16",
    "int16",
    "uint16",
    "int8",
    "uint8",
    "bool",
    "int64",
    "uint64",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
)
_CARRIER = {
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
    "float8_e4m3fn": "unsigned char",
    "float8_e5m2": "unsigned char",
    "float8_e8m0fnu": "unsigned char",
    "int16": "int",
    "uint16": "unsigned",
    "int8": "int",
    "uint8": "unsigned",
    "bool": "int",
}


# Some lanes of a warp, named by a mask that all of them give: the others need not come.
_PART = Static("part", bool, False)
_LANES = value("lanes", "uint32")


def _among(part: bool) -> tuple[tuple[Operand, ...], str]:
    """The operands that say which lanes take part, and the mask in the text."""
    return ((_LANES,), "lanes") if part else ((), _ALL)


def _shuffle(function: str, lane: str):
    def build(dtype: str, width: int, part: bool) -> Form:
        named, all_ = _among(part)
        operands = (value("x", dtype), value(lane), *named)
        carrier = _CARRIER.get(dtype)
        if carrier and "float" in dtype:  # they travel as bits: no dependence on the operators of their type
            moved = f"({carrier}){function}({all_}, (unsigned)b, {lane}, {width})"
            body = f"{carrier} b = *({carrier}*)&x; b = {moved}; return *({CTYPE[dtype]}*)&b;"
        elif carrier:
            body = f"return ({CTYPE[dtype]}){function}({all_}, ({carrier})x, {lane}, {width});"
        else:
            body = f"return {function}({all_}, x, {lane}, {width});"
        return Form(operands, body, dtype)

    return build


_SHUFFLE_STATICS = (
    Static("dtype", str, "float32", _SHUFFLE_DTYPES),
    Static("width", int, 32, (1, 2, 4, 8, 16, 32)),
    _PART,
)


def _redux(op: str):
    def build(dtype: str) -> Form:
        ptx = "b32" if op in ("and", "or", "xor") else {"int32": "s32", "uint32": "u32"}[dtype]
        operands = (value("x", dtype),)
        return Form(operands, asm(f"redux.sync.{op}.{ptx} $result, $x, 0xffffffff;", operands, dtype), dtype)

    return build


def parse_registers(text: str) -> tuple[Operand, ...]:
    """Register operands `r0, r1, ...` of a list such as "f64 r32": f = float32, r = 32-bit, with the number of
    registers.
    """
    kinds = {"f": "float32", "r": "uint32"}
    return tuple(regs(f"r{i}", kinds[part[0]], int(part[1:])) for i, part in enumerate(text.split()))


def _reg_fence(regs: str) -> Form:
    operands = parse_registers(regs)
    return Form(operands, asm("", operands, update=[o.name for o in operands]), "void", (Fence("compiler"),))


def _keep(dtype: str) -> Form:
    constraint = {"float32": "f", "int64": "l", "uint64": "l"}.get(dtype, "r")
    return Form((value("x", dtype),), f'asm volatile("" : "+{constraint}"(x)); return x;', dtype)


def _special(register: str) -> Form:
    return Form((), asm(f"mov.u32 $result, %%{register};", (), "int32", pure=True), "int32")


def _match(function: str):
    def build(dtype: str, part: bool) -> Form:
        named, mask = _among(part)
        operands = (value("x", dtype), *named)
        if function == "__match_all_sync":
            return Form(operands, f"int all; unsigned found = {function}({mask}, x, &all); return found;", "uint32")
        return Form(operands, f"return {function}({mask}, x);", "uint32")

    return build


def _count(function: str, result: str) -> Form:
    body = f"return {function}(p);"
    return Form(_P, body if result == "int32" else body.replace("return ", "return 0 != "), result, (Sync("block"),))


def _vote(function: str, result: str):
    def build(part: bool) -> Form:
        named, mask = _among(part)
        return Form((*_P, *named), f"return {function}({mask}, p);", result)

    return build


def _syncwarp(part: bool) -> Form:
    named, mask = _among(part)
    return Form(named, f"__syncwarp({mask if part else ''});", effects=(Sync("warp"),))


_MATCH_STATICS = (Static("dtype", str, "int32", ("int32", "uint32", "int64", "uint64", "float32", "float64")), _PART)
_P = (value("p", "bool"),)
_X = (value("x"),)

ROWS = (
    DeviceOpRow(
        "uniform",
        Form(_X, f"return __shfl_sync({_ALL}, x, 0);", "int32"),
        converges=_WARP,
        uniform=True,
        doc="the value of lane 0, known to be warp uniform: it and what follows from it stay in uniform registers",
    ),
    DeviceOpRow(
        "keep",
        _keep,
        (Static("dtype", str, "int32", ("int32", "uint32", "float32", "int64", "uint64")),),
        doc="x, computed exactly once and here. Not for uniform values of 32 bits: it takes them out of uniform "
        "registers",
    ),
    DeviceOpRow(
        "shfl_xor", _shuffle("__shfl_xor_sync", "mask"), _SHUFFLE_STATICS, _WARP, doc="x of lane (lane ^ mask)"
    ),
    DeviceOpRow(
        "shfl_down",
        _shuffle("__shfl_down_sync", "delta"),
        _SHUFFLE_STATICS,
        _WARP,
        doc="x of lane (lane + delta), own x past the end",
    ),
    DeviceOpRow(
        "shfl_up",
        _shuffle("__shfl_up_sync", "delta"),
        _SHUFFLE_STATICS,
        _WARP,
        doc="x of lane (lane - delta), own x before the start",
    ),
    DeviceOpRow("shfl_idx", _shuffle("__shfl_sync", "lane"), _SHUFFLE_STATICS, _WARP, doc="x of the given lane"),
    DeviceOpRow(
        "vote_any",
        _vote("__any_sync", "bool"),
        (_PART,),
        converges=_WARP,
        uniform=True,
        doc="p holds in some lane",
    ),
    DeviceOpRow(
        "vote_all",
        _vote("__all_sync", "bool"),
        (_PART,),
        converges=_WARP,
        uniform=True,
        doc="p holds in every lane",
    ),
    DeviceOpRow(
        "ballot",
        _vote("__ballot_sync", "uint32"),
        (_PART,),
        converges=_WARP,
        uniform=True,
        doc="bit i = p of lane i",
    ),
    DeviceOpRow(
        "match_any",
        _match("__match_any_sync"),
        _MATCH_STATICS,
        _WARP,
        doc="bit i = lane i has the same bits in x as this lane",
    ),
    DeviceOpRow(
        "match_all",
        _match("__match_all_sync"),
        _MATCH_STATICS,
        _WARP,
        uniform=True,
        doc="all lanes, where x has the same bits in all of them, else 0",
    ),
    *(
        DeviceOpRow(
            f"sync_threads_{name}",
            _count(f"__syncthreads_{name}", result),
            converges=Convergence.BLOCK,
            doc=f"barrier of the block; {doc}",
        )
        for name, result, doc in (
            ("count", "int32", "the number of threads for which p holds"),
            ("and", "bool", "does p hold in all threads"),
            ("or", "bool", "does p hold in some thread"),
        )
    ),
    DeviceOpRow("activemask", Form((), "return __activemask();", "uint32"), doc="bit i = lane i executes this now"),
    *(
        DeviceOpRow(
            f"redux_{op}",
            _redux(op),
            (Static("dtype", str, "int32", ("int32", "uint32")),),
            _WARP,
            uniform=True,
            doc=f"{op} of x over the warp",
        )
        for op in ("add", "min", "max", "and", "or", "xor")
    ),
    DeviceOpRow(
        "elect_one",
        Form(
            (),
            asm("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 $result, 1, 0, p; }", (), "int32").replace(
                "return y", "return y != 0"
            ),
            "bool",
        ),
        converges=_WARP,
        needs="sm_90",
        doc="true in exactly one lane of the warp",
    ),
    DeviceOpRow(
        "syncwarp",
        _syncwarp,
        (_PART,),
        converges=_WARP,
        doc="barrier of the warp, or of some of its lanes; orders their memory accesses",
    ),
    DeviceOpRow(
        "sync_threads",
        Form((), "__syncthreads();", effects=(Sync("block"),)),
        converges=Convergence.BLOCK,
        doc="barrier of the block; orders its memory accesses",
    ),
    DeviceOpRow(
        "reg_fence",
        _reg_fence,
        (Static("regs", str),),
        doc="no instruction: uses of the named registers stay before or after it. "
        '`regs` such as "f64 r32" (float32 / 32-bit registers)',
    ),
    DeviceOpRow(
        "pin",
        Form(
            (value("x", "float32"),),
            asm("{ .reg .pred p; setp.gt.f32 p, $x, 0f7F7FFFFF; @p nanosleep.u32 0; }", (value("x", "float32"),)),
        ),
        doc="ordering point after x is known (a branch that is never taken)",
    ),
    DeviceOpRow(
        "any_nan",
        Form(
            (value("a", "float32"), value("b", "float32")),
            asm(
                "{ .reg .pred p, q; setp.nan.f32 p, $a, $b; vote.sync.any.pred q, p, 0xffffffff; "
                "selp.u32 $result, 1, 0, q; }",
                (value("a", "float32"), value("b", "float32")),
                "int32",
            ),
            "int32",
        ),
        converges=_WARP,
        uniform=True,
        doc="1 if a or b is NaN in some lane, else 0: known when they are, and no compiler can guess it",
    ),
    DeviceOpRow(
        "settle",
        Form(
            (value("value"),),
            asm(
                "{ .reg .pred p; setp.eq.b32 p, $value, 0; @p bra.uni KNOWN; nanosleep.u32 0; KNOWN: }",
                (value("value"),),
            ),
        ),
        converges=_WARP,
        doc="ends a basic block: what stands before it is issued before what follows. A short sleep unless `value`, "
        "which is warp uniform, is 0",
    ),
    DeviceOpRow("lane_id", _special("laneid"), doc="lane in the warp"),
    DeviceOpRow(
        "cluster_rank", _special("cluster_ctarank"), needs="sm_90", uniform=True, doc="rank of the block in its cluster"
    ),
    DeviceOpRow(
        "cluster_size", _special("cluster_nctarank"), needs="sm_90", uniform=True, doc="number of blocks in the cluster"
    ),
    DeviceOpRow("sm_id", _special("smid"), uniform=True, doc="number of the SM"),
    DeviceOpRow(
        "clock", Form((), asm("mov.u64 $result, %%clock64;", (), "uint64"), "uint64"), doc="cycle counter of the SM"
    ),
    DeviceOpRow(
        "global_timer", Form((), asm("mov.u64 $result, %%globaltimer;", (), "uint64"), "uint64"), doc="nanoseconds"
    ),
    DeviceOpRow(
        "nanosleep",
        Form((value("ns", "uint32"),), asm("nanosleep.u32 $ns;", (value("ns", "uint32"),))),
        doc="sleep about ns nanoseconds",
    ),
    DeviceOpRow("trap", Form((), asm("trap;", ())), doc="abort the kernel with an error"),
)
