# SPDX-License-Identifier: Apache-2.0
"""The native launcher against a recording driver: what is loaded, encoded and launched, and with which bytes."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tilelang.runtime.kernel import CudaKernel, load
from tilelang.runtime.plan import (
    KernelLaunch,
    LaunchPlan,
    PointerParam,
    ScalarParam,
    TensorMapParam,
    TileQueueParam,
    ValueParam,
    WorkspaceParam,
)
from tilelang.runtime.signature import ScalarArg, Signature, Slot, TensorArg

M, K = "s0", "64"
SIGNATURE = Signature(
    "gemm",
    (
        TensorArg("A", "float16", (M, K)),
        TensorArg("B", "float32", (M,)),
        ScalarArg("alpha", "float32"),
        ScalarArg("flag", "int32"),
    ),
    (Slot("M", "shape", 0, 0), Slot("flag", "scalar", 3)),
)


def make(params: tuple[Any, ...], signature: Signature = SIGNATURE, **launch: Any) -> CudaKernel:
    fields: dict[str, Any] = {"grid": ("s0 127 add 128 floordiv", "2", "1"), "block": ("128", "1", "1"), **launch}
    workspaces = fields.pop("workspaces", ())
    plan = LaunchPlan(signature, (KernelLaunch("gemm_kernel", params=params, **fields),), workspaces, device_type="cpu")
    return CudaKernel(b"cubin-01-bytes", plan)


def inputs(m: int = 300) -> tuple[Any, ...]:
    return torch.zeros(m, 64, dtype=torch.float16), torch.zeros(m), 2.5, 7


def test_launch_passes_pointers_values_and_scalars(driver: Any) -> None:
    driver.params(8, 8, 4, 4, 4)
    kernel = make((PointerParam(0), PointerParam(1), ValueParam("s0"), ScalarParam(2), ScalarParam(3)))
    a, b, alpha, flag = inputs()
    kernel(a, b, alpha, flag)
    (launch,) = driver.calls("launch")
    assert (launch["grid"], launch["block"], launch["function"]) == ([3, 2, 1], [128, 1, 1], "gemm_kernel")
    raw = [bytes.fromhex(p) for p in launch["params"]]
    assert struct.unpack("<QQifi", b"".join(raw)) == (a.data_ptr(), b.data_ptr(), 300, 2.5, 7)
    assert launch["attributes"] == [] and launch["shared"] == 0


def test_module_is_loaded_once(driver: Any) -> None:
    kernel = make((PointerParam(0),))
    for _ in range(3):
        kernel(*inputs())
    assert [c["image"] for c in driver.calls("load")] == ["cubin-01"]
    assert len(driver.calls("launch")) == 3


def test_large_shared_memory_is_asked_for_once(driver: Any) -> None:
    kernel = make((PointerParam(0),), shared_bytes="100000")
    kernel(*inputs())
    kernel(*inputs())
    assert driver.calls("attribute") == [
        {"call": "attribute", "function": "gemm_kernel", "attribute": 8, "value": 100000}
    ]


def test_launch_attributes(driver: Any) -> None:
    kernel = make((), cluster=(2, 1, 1), cooperative=True, programmatic=True)
    kernel(*inputs())
    (launch,) = driver.calls("launch")
    assert launch["attributes"] == [[4, 2, 1, 1], [2, 1, 0, 0], [6, 1, 0, 0]]


def test_empty_grid_launches_nothing(driver: Any) -> None:
    make((PointerParam(0),))(*inputs(0))
    assert driver.calls("launch") == []


def test_tensor_map_is_encoded_once_a_tensor(driver: Any) -> None:
    tensor_map = TensorMapParam(
        0, "float16", dims=(K, M), strides=("128",), box=(64, 128), swizzle=128, l2_promotion=256
    )
    kernel = make((tensor_map, PointerParam(1)))
    driver.params(128, 8)
    args, others = inputs(), inputs()
    for given in (args, args, others, args):
        kernel(*given)
    encoded = driver.calls("encode")
    assert [e["address"] for e in encoded] == [args[0].data_ptr(), others[0].data_ptr()]
    assert {k: encoded[0][k] for k in ("type", "rank", "dims", "strides", "box", "element_strides")} == {
        "type": 6,
        "rank": 2,
        "dims": [64, 300],
        "strides": [128],
        "box": [64, 128],
        "element_strides": [1, 1],
    }
    assert (encoded[0]["swizzle"], encoded[0]["l2"], encoded[0]["oob"], encoded[0]["interleave"]) == (3, 3, 0, 0)
    addresses = [struct.unpack("<Q", bytes.fromhex(c["params"][0])[:8])[0] for c in driver.calls("launch")]
    assert addresses == [args[0].data_ptr(), args[0].data_ptr(), others[0].data_ptr(), args[0].data_ptr()]


def test_tensor_map_cache_forgets_the_oldest(driver: Any) -> None:
    kernel = make((TensorMapParam(0, "float16", (K, M), ("128",), (64, 64)),))
    tensors = [torch.zeros(10 + i, 64, dtype=torch.float16) for i in range(12)]
    for _ in range(2):
        for tensor in tensors:
            kernel(tensor, torch.zeros(len(tensor)), 1.0, 0)
    assert len(driver.calls("encode")) == 24


def test_tensor_map_of_an_empty_tensor_uses_a_dummy(driver: Any) -> None:
    kernel = make((TensorMapParam(0, "float16", (K, M), ("128",), (64, 64)),), grid=("1", "1", "1"))
    kernel(*inputs(0))
    (encoded,) = driver.calls("encode")
    assert (encoded["address"], encoded["dims"], encoded["strides"]) == (4096, [1, 1], [16])


def test_tensor_map_rules_name_the_argument(driver: Any) -> None:
    kernel = make((TensorMapParam(0, "float16", (K, M), ("130",), (64, 64)),))
    with pytest.raises(ValueError, match=r"argument 0 'A'.*multiples of 16 bytes.*given 130"):
        kernel(*inputs())
    offset = torch.zeros(300 * 64 + 1, dtype=torch.float16)[1:].view(300, 64)
    kernel = make((TensorMapParam(0, "float16", (K, M), ("128",), (64, 64)),))
    with pytest.raises(ValueError, match=r"argument 0 'A'.*aligned to 16 bytes"):
        kernel(offset, *inputs()[1:])


def test_workspace_is_allocated_for_the_call(driver: Any) -> None:
    driver.params(8)
    kernel = make((WorkspaceParam(0),), workspaces=("s0 4 mul",))
    if not torch.cuda.is_available():
        # The workspace lives on the CUDA device, which torch lacks here; the request itself must arrive.
        with pytest.raises(Exception, match=r"(?i)cuda"):
            kernel(*inputs())
        return
    kernel(*inputs())


def test_every_stream_and_graph_has_a_tile_queue(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches that may run together must not share the counter that hands out tiles; others may."""
    driver.params(8)
    kernel = make((TileQueueParam(),))
    for capture in ("", "", "5", "5", "6", ""):
        if capture:
            monkeypatch.setenv("TILELANG_STUB_CAPTURE", capture)
        else:
            monkeypatch.delenv("TILELANG_STUB_CAPTURE", raising=False)
        kernel(*inputs())
    used = [struct.unpack("<Q", bytes.fromhex(c["params"][0]))[0] for c in driver.calls("launch")]
    eager, first, second = used[0], used[2], used[4]
    assert used == [eager, eager, first, first, second, eager]
    assert len({eager, first, second}) == 3 and all(address % 32 == 0 for address in used)


def test_driver_errors_are_told(driver: Any) -> None:
    driver.fail("launch")
    with pytest.raises(RuntimeError, match=r"launching gemm_kernel failed: CUDA_ERROR_INVALID_VALUE.*grid \(3, 2, 1\)"):
        make(())(*inputs())
    driver.fail("load")
    with pytest.raises(RuntimeError, match="loading the kernel"):
        make(())(*inputs())


def test_value_that_does_not_fit_its_type(driver: Any) -> None:
    kernel = make((ValueParam("s0 4000000000 mul", "int32"),))
    with pytest.raises(ValueError, match="int32"):
        kernel(*inputs())


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 65504.0, 65520.0, 1e-7, 6e-8, 3e-8, 1 / 3, 1e30, float("inf")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_scalars_round_as_torch_does(driver: Any, dtype: str, value: float) -> None:
    driver.params(2)
    signature = Signature("f", (ScalarArg("x", dtype),))
    make((ScalarParam(0),), signature, grid=("1", "1", "1"))(value)
    (launch,) = driver.calls("launch")
    wanted = torch.tensor([value], dtype=getattr(torch, dtype)).view(torch.int16).item() & 0xFFFF
    assert struct.unpack("<H", bytes.fromhex(launch["params"][0]))[0] == wanted


def test_save_and_load_keep_the_kernel(driver: Any, tmp_path: Path) -> None:
    signature = Signature(
        "scale",
        (TensorArg("A", "float32", ("s0",)), TensorArg("B", "float32", ("s0",))),
        (Slot("n", "shape", 0),),
        outputs=(1,),
    )
    kernel = make((PointerParam(0), PointerParam(1)), signature)
    kernel.save(tmp_path / "kernel")
    loaded = load(tmp_path / "kernel")
    assert loaded.kernel.plan.to_json() == kernel.plan.to_json()
    assert loaded.kernel.cubin == kernel.cubin
    out = loaded(torch.ones(5))
    assert out.shape == (5,)
    with pytest.raises(ValueError, match="takes 1 inputs"):
        loaded()


def test_timer_records_on_the_stream(driver: Any) -> None:
    from tilelang.runtime.native import make_timer

    timer = make_timer(0)
    timer("start", 5)
    timer("stop", 5)
    assert timer("elapsed", 0) == 1.5
    assert [c["stream"] for c in driver.calls("record")] == [5, 5]


def test_preconditions_are_checked_before_a_launch(driver: Any) -> None:
    signature = replace(SIGNATURE, preconditions=(("s0 2 floormod 0 eq", "an even number of rows"),))
    kernel = make((PointerParam(0),), signature)
    kernel.run(*inputs(300))
    with pytest.raises(RuntimeError, match=r"gemm\(\): an even number of rows"):
        kernel.run(*inputs(301))
    assert len(driver.calls("launch")) == 1
