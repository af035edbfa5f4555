# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx

from tilelang.ir.device.row import CTYPE, Kind
from tilelang.ir.device_ops import (
    DEVICE_OPS,
    Access,
    Arrive,
    DeviceOp,
    DeviceOpRow,
    Form,
    Mode,
    Sync,
    Wait,
    advance_descriptor,
    describe,
    device_op,
    registers,
)

REQUIRED = {"n": 64, "regs": 40, "shape": "m16n8k16"}


def default_form(row: DeviceOpRow) -> Form:
    given: dict[str, Any] = {s.name: REQUIRED[s.name] for s in row.statics if s.default is None}
    if row.name == "reg_fence":
        given["regs"] = "f4 r2"
    return row.form(**given)


@pytest.mark.parametrize("row", DEVICE_OPS.values(), ids=lambda r: r.name)
def test_effects_name_operands_of_the_row(row: DeviceOpRow) -> None:
    form = default_form(row)
    operands = {o.name for o in form.operands}
    for effect in form.effects:
        named: list[Any] = []
        match effect:
            case Access():
                named = [effect.operand, effect.barrier]
                assert isinstance(effect.extent, int) or effect.extent in operands | {"all", "box", "descriptor"}
            case Arrive():
                named = [effect.barrier, effect.tx, effect.cta, effect.count if isinstance(effect.count, str) else ""]
            case Wait():
                named = [effect.barrier, effect.parity]
            case Sync():
                named = [effect.id, effect.threads]
        assert {n for n in named if n} <= operands


@pytest.mark.parametrize("row", DEVICE_OPS.values(), ids=lambda r: r.name)
def test_written_registers_are_outputs_of_the_text(row: DeviceOpRow) -> None:
    """What the effects call written must be an asm output or assigned, else the compiler keeps the old value."""
    form = default_form(row)
    for effect in form.effects:
        operand = next((o for o in form.operands if isinstance(effect, Access) and o.name == effect.operand), None)
        if operand is None or operand.kind is not Kind.REGS or not isinstance(effect, Access):
            continue
        marks = {Mode.READ: "", Mode.WRITE: "=", Mode.UPDATE: "+"}[effect.mode]
        assert (
            f'"{marks}f"({operand.name}[0])' in form.body
            or f'"{marks}r"({operand.name}[0])' in form.body
            or f'"{marks}d"({operand.name}[0])' in form.body
            or f"{operand.name}[0] &= " in form.body
        )


def test_a_call_is_taken_apart() -> None:
    bar, tile = tirx.decl_buffer((4,), "uint64", "bar"), tirx.decl_buffer((64,), "uint8", "tile")
    tmap = tirx.Var("m", "handle")
    stmt = device_op("tma_load_2d", tirx.address_of(tile[0]), tmap, tirx.address_of(bar[1]), 0, 8, hint=False)
    assert isinstance(stmt, tirx.Evaluate)
    op = DeviceOp.from_node(stmt)
    assert op is not None
    assert (op.name, op.statics) == ("tma_load_2d", {"hint": False, "multicast": False})
    assert op["bar"].args[0].indices[0].value == 1
    assert int(op["c1"]) == 8
    assert DeviceOp.from_node(stmt.value) is not None
    assert DeviceOp.from_node(tirx.Evaluate(0)) is None


def test_results_make_expressions() -> None:
    call = device_op("vote_any", tirx.Var("p", "bool"))
    assert str(call.ty.dtype) == "bool"
    assert str(device_op("atomic_add", tirx.Var("p", "handle"), 1, dtype="uint64").ty.dtype) == "uint64"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: device_op("bar_sync", 1), TypeError),  # an operand is missing
        (lambda: device_op("bulk_wait", pendng=1), KeyError),
        (lambda: device_op("setmaxnreg_inc"), KeyError),  # required
        (lambda: device_op("setmaxnreg_inc", regs=250), ValueError),
        (lambda: device_op("shfl_xor", 1.0, 1, dtype="complex64"), ValueError),
        (lambda: device_op("mbar_wait", tirx.decl_buffer((1,), "uint64", "b"), 0), TypeError),
        (lambda: DEVICE_OPS["wgmma_ss"].form(n=12), ValueError),
        (lambda: DEVICE_OPS["wgmma_ss"].form(n=24, a_dtype="tf32", b_dtype="tf32", tnsp_b=True), ValueError),
        (lambda: DEVICE_OPS["wgmma_ss"].form(n=40, a_dtype="int8", b_dtype="uint8", acc_dtype="int32"), ValueError),
        (lambda: DEVICE_OPS["wgmma_rs"].form(n=64, tnsp_a=True), ValueError),
        (lambda: DEVICE_OPS["wgmma_ss"].form(n=64, a_dtype="float16", b_dtype="bfloat16"), ValueError),
        (lambda: DEVICE_OPS["mma"].form(shape="m16n8k8", a_dtype="int8", b_dtype="int8"), ValueError),
    ],
)
def test_misuse_is_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_register_lists_of_buffers() -> None:
    acc = tirx.decl_buffer((8, 8), "float32", "acc", scope="local")
    a = tirx.decl_buffer((64,), "bfloat16", "a", scope="local")
    c8 = tirx.decl_buffer((16,), "float8_e4m3fn", "c", scope="local")
    assert registers(acc, a, c8) == "f64 r32 r4"
    with pytest.raises(ValueError, match="32-bit"):
        registers(tirx.decl_buffer((3,), "float16", "odd", scope="local"))


def test_descriptors_move_in_16_byte_steps() -> None:
    base = tirx.Var("d", "uint64")
    assert advance_descriptor(base, 0).same_as(base)
    assert "T.uint64(8)" in str(advance_descriptor(base, 128))
    assert "uint32" in str(advance_descriptor(base, tirx.Var("i", "int32")))  # no sign extension


def test_types_of_operands_have_cuda_names() -> None:
    for row in DEVICE_OPS.values():
        form = default_form(row)
        assert form.result in CTYPE
        assert all(o.dtype in CTYPE for o in form.operands if o.dtype)


def test_the_table_is_described() -> None:
    text = describe()
    assert text.count("\n") == len(DEVICE_OPS) + 2
    assert all(row.doc for row in DEVICE_OPS.values())
