# SPDX-License-Identifier: Apache-2.0
"""Rows on the bulk copy engine (TMA): loads that complete on an mbarrier, stores that complete in bulk groups."""

from __future__ import annotations

from tilelang.ir.device.effects import Access, Commit, GroupWait, Mode, Proxy
from tilelang.ir.device.row import DeviceOpRow, Form, Operand, Static, asm, gmem, smem, tmap, value

__all__ = ["BULK", "ROWS"]

BULK = "bulk"  # group of bulk stores of one thread
_POLICY = value("policy", "uint64")
_HINT = Static("hint", bool, False)
_SM = "sm_90"


def _coords(rank: int) -> tuple[Operand, ...]:
    return tuple(value(f"c{i}") for i in range(rank))


def _list(rank: int) -> str:
    return "{" + ", ".join(f"$c{i}" for i in range(rank)) + "}"


def _load(rank: int):
    def build(hint: bool, multicast: bool) -> Form:
        operands = (smem("dst"), tmap("map"), smem("bar"), *_coords(rank))
        text = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        tail = ""
        if multicast:
            operands, text, tail = (*operands, value("mask", "uint16")), text + ".multicast::cluster", ", $mask"
        if hint:
            operands, text, tail = (*operands, _POLICY), text + ".L2::cache_hint", tail + ", $policy"
        effects = (
            Access("map", Mode.READ, "box", Proxy.ASYNC, barrier="bar"),
            Access("dst", Mode.WRITE, "box", Proxy.ASYNC, barrier="bar"),
        )
        return Form(operands, asm(f"{text} [$dst], [$map, {_list(rank)}], [$bar]{tail};", operands), effects=effects)

    return build


def _prefetch(rank: int):
    def build(hint: bool) -> Form:
        operands = (tmap("map"), *_coords(rank))
        text, tail = f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile", ""
        if hint:
            operands, text, tail = (*operands, _POLICY), text + ".L2::cache_hint", ", $policy"
        return Form(operands, asm(f"{text} [$map, {_list(rank)}]{tail};", operands))

    return build


def _store(rank: int, reduce: str = ""):
    def build(hint: bool) -> Form:
        operands = (tmap("map"), smem("src"), *_coords(rank))
        kind = (
            f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{reduce}.tile"
            if reduce
            else f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile"
        )
        text, tail = kind + ".bulk_group", ""
        if hint:
            operands, text, tail = (*operands, _POLICY), text + ".L2::cache_hint", ", $policy"
        effects = (
            Access("src", Mode.READ, "box", Proxy.ASYNC, group=BULK),
            Access("map", Mode.ATOMIC if reduce else Mode.WRITE, "box", Proxy.ASYNC, group=BULK),
        )
        return Form(operands, asm(f"{text} [$map, {_list(rank)}], [$src]{tail};", operands), effects=effects)

    return build


def _bulk_load(multicast: bool) -> Form:
    operands = (smem("dst"), gmem("src"), value("bytes"), smem("bar"))
    text, tail = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", ""
    if multicast:
        operands, text, tail = (*operands, value("mask", "uint16")), text + ".multicast::cluster", ", $mask"
    effects = (
        Access("src", Mode.READ, "bytes", Proxy.ASYNC, barrier="bar"),
        Access("dst", Mode.WRITE, "bytes", Proxy.ASYNC, barrier="bar"),
    )
    return Form(operands, asm(f"{text} [$dst], [$src], $bytes, [$bar]{tail};", operands), effects=effects)


_ADD = {
    "float32": "f32",
    "float16": "noftz.f16",
    "bfloat16": "noftz.bf16",
    "int32": "s32",
    "uint32": "u32",
    "float64": "f64",
}


def _bulk_store(reduce_add: str) -> Form:
    operands = (gmem("dst"), smem("src"), value("bytes"))
    text = (
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.{_ADD[reduce_add]}"
        if reduce_add
        else "cp.async.bulk.global.shared::cta.bulk_group"
    )
    effects = (
        Access("src", Mode.READ, "bytes", Proxy.ASYNC, group=BULK),
        Access("dst", Mode.ATOMIC if reduce_add else Mode.WRITE, "bytes", Proxy.ASYNC, group=BULK),
    )
    return Form(operands, asm(f"{text} [$dst], [$src], $bytes;", operands), effects=effects)


def _copy_remote() -> Form:
    operands = (value("dst"), smem("src"), value("bytes"), value("bar"))
    text = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [$dst], [$src], $bytes, [$bar];"
    effects = (
        Access("src", Mode.READ, "bytes", Proxy.ASYNC, barrier="bar"),
        Access("dst", Mode.WRITE, "bytes", Proxy.ASYNC, barrier="bar"),
    )
    return Form(operands, asm(text, operands), effects=effects)


def _wait(reads_only: bool):
    def build(pending: int) -> Form:
        text = f"cp.async.bulk.wait_group{'.read' if reads_only else ''} {pending};"
        return Form((), asm(text, ()), effects=(GroupWait(BULK, pending, reads_only),))

    return build


def _policy(name: str) -> DeviceOpRow:
    text = f"createpolicy.fractional.L2::{name}.b64 $result, 1.0;"
    return DeviceOpRow(
        f"l2_{name}",
        Form((), asm(text, (), "uint64", pure=True), "uint64"),
        doc=f"L2 cache policy {name}",
        uniform=True,
    )


_PENDING = (Static("pending", int, 0),)
_RANKS = range(1, 6)

ROWS = (
    *(
        DeviceOpRow(
            f"tma_load_{r}d",
            _load(r),
            (_HINT, Static("multicast", bool, False)),
            needs=_SM,
            doc="box at coordinates c (fastest first) -> shared `dst`; complete_tx of the box bytes on `bar`. "
            "multicast: to the same offsets in all blocks of `mask`",
        )
        for r in _RANKS
    ),
    *(
        DeviceOpRow(
            f"tma_prefetch_{r}d",
            _prefetch(r),
            (_HINT,),
            needs=_SM,
            doc="bring a box at coordinates c into L2; nobody waits for it, and memory stays as it is",
        )
        for r in _RANKS
    ),
    *(
        DeviceOpRow(
            f"tma_store_{r}d",
            _store(r),
            (_HINT,),
            needs=_SM,
            doc="shared `src` -> box at coordinates c, clipped; needs fence_proxy_async after generic writes",
        )
        for r in _RANKS
    ),
    *(
        DeviceOpRow(
            f"tma_reduce_add_{r}d",
            _store(r, "add"),
            (_HINT,),
            needs=_SM,
            doc="box at coordinates c += shared `src` (atomic for each element)",
        )
        for r in _RANKS
    ),
    DeviceOpRow(
        "bulk_load",
        _bulk_load,
        (Static("multicast", bool, False),),
        needs=_SM,
        doc="`bytes` (multiple of 16) contiguous bytes -> shared; 16-byte aligned; complete_tx on `bar`",
    ),
    DeviceOpRow(
        "bulk_store",
        _bulk_store,
        (Static("reduce_add", str, "", ("", *_ADD)),),
        needs=_SM,
        doc="`bytes` contiguous shared bytes -> global, or added as that dtype",
    ),
    DeviceOpRow(
        "bulk_copy_remote",
        _copy_remote,
        needs=_SM,
        doc="shared bytes -> shared::cluster address `dst`; complete_tx on the mbarrier there at `bar`",
    ),
    DeviceOpRow(
        "bulk_commit",
        Form((), asm("cp.async.bulk.commit_group;", ()), effects=(Commit(BULK),)),
        needs=_SM,
        doc="close a group of bulk stores of this thread",
    ),
    DeviceOpRow(
        "bulk_wait", _wait(False), _PENDING, needs=_SM, doc="at most `pending` groups of this thread are incomplete"
    ),
    DeviceOpRow(
        "bulk_wait_read",
        _wait(True),
        _PENDING,
        needs=_SM,
        doc="at most `pending` groups of this thread still read shared memory",
    ),
    DeviceOpRow(
        "prefetch_tensormap",
        Form((tmap("map"),), asm("prefetch.tensormap [$map];", (tmap("map"),))),
        needs=_SM,
        doc="bring the tensor map near",
    ),
    _policy("evict_first"),
    _policy("evict_last"),
    _policy("evict_normal"),
)
