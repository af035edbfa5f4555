# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cuda import PointerParam, ScalarParam, TensorMapParam, lower_to_cuda
from tilelang.codegen.errors import OpNeedsArch, SharedMemoryExceeded, TooManyThreads
from tilelang.ir.attrs import CLUSTER_DIMS
from tilelang.ir.device_ops import device_op
from tilelang.ir.tensor_map import TensorMapSpec, find_tensor_maps, tensor_map
from tilelang.support.errors import InternalError
from tilelang.target.arch import arch_of

ARCH = arch_of("sm_90a")


def emit(op: str, *args: Any, **statics: Any) -> None:
    T.evaluate(device_op(op, *args, **statics).value)


def tensor(name: str, shape: tuple[Any, ...], dtype: str = "float32") -> Any:
    return T.arg(name, T.buffer(shape, dtype, layout=None))


def function(body: Callable[[], None]) -> Any:
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("main")
        body()
    return ib.get()


def launch(threads: int = 64, blocks: Any = 4) -> Any:
    return T.launch_thread("blockIdx.x", blocks), T.launch_thread("threadIdx.x", threads)


def test_parameters_come_in_the_order_of_the_kernel() -> None:
    """TVM sorts them; what each one is comes from the host function."""

    def body() -> None:
        n = tirx.Var("n", "int32")
        z, a = tensor("z", (n, 64)), tensor("a", (n, 64))
        scale = T.arg("scale", tirx.Var("scale", "float32"))
        grid = T.bind((n + 63) // 64)
        blocks, threads = launch(blocks=grid)
        with blocks as b, threads as t:
            T.buffer_store(z, a[b, t] * scale, [b, t])

    source = lower_to_cuda(function(body), ARCH)
    (kernel,) = source.kernels
    kinds = {p.name: p for p in kernel.params}
    assert isinstance(kinds["z"], PointerParam) and kinds["z"].index == 0
    assert isinstance(kinds["a"], PointerParam) and kinds["a"].index == 1
    assert isinstance(kinds["scale"], ScalarParam) and kinds["scale"].dtype == "float32"
    assert str(kernel.grid[0]) == "(n + 63) // 64"  # host binds are substituted
    signature = source.text[source.text.index("main_kernel(") :].split(")")[0]
    assert [w.split()[-1].removesuffix("_ptr") for w in signature.split(",")] == [p.name for p in kernel.params]


def test_shared_addresses_are_offsets_from_one_base() -> None:
    def body() -> None:
        blocks, threads = launch()
        with blocks, threads as t:
            arena = T.alloc_buffer((2048,), "uint8", scope="shared.dyn", align=1024, layout=None)
            bar = T.decl_buffer((4, 2), "uint64", data=arena.data, elem_offset=128, scope="shared.dyn", layout=None)
            emit("mbar_wait", tirx.address_of(bar[t, 1]), 0)

    source = lower_to_cuda(function(body), ARCH)
    assert "tl_mbar_wait((((((int)threadIdx.x) * 16) + smem_base) + 1032), 0)" in source.text
    assert int(source.kernels[0].smem_bytes) == 2048


def test_tensor_maps_are_data() -> None:
    def body() -> None:
        m = tirx.Var("m", "int32")
        a = tensor("a", (m, 64), "bfloat16")
        var, stmts = tensor_map("a_map", TensorMapSpec(a, "bfloat16", (64, m), (128,), (64, 32), swizzle=64))
        T.bind(stmts[0].value, var=var)
        T.evaluate(stmts[1].value)
        blocks, threads = launch()
        with blocks, threads:
            emit("prefetch_tensormap", tirx.address_of(var))

    func = function(body)
    (spec,) = find_tensor_maps(func).values()
    assert (spec.buffer.name, spec.box, spec.swizzle, spec.rank) == ("a", (64, 32), 64, 2)
    (param,) = lower_to_cuda(func, ARCH).kernels[0].params
    assert isinstance(param, TensorMapParam)
    assert (param.index, param.spec.swizzle, param.spec.box) == (0, 64, (64, 32))


@pytest.mark.parametrize(
    "fields",
    [{"box": (64,)}, {"box": (64, 257)}, {"swizzle": 16}, {"strides": ()}, {"dims": (1,) * 6, "strides": (1,) * 5}],
)
def test_impossible_tensor_maps_are_refused(fields: dict[str, Any]) -> None:
    given = {"dims": (64, 8), "strides": (128,), "box": (64, 8), **fields}
    with pytest.raises(ValueError, match="tensor map"):
        TensorMapSpec(None, "bfloat16", **given)


@pytest.mark.parametrize(("rows", "wide"), [(1024, False), (2**26, True), ("n", True)])
def test_offsets_that_may_pass_2g_are_64_bit(rows: Any, wide: bool) -> None:
    def body() -> None:
        n = tirx.Var("n", "int32") if rows == "n" else rows
        a = tensor("a", (n, 64))
        blocks, threads = launch(blocks=n)
        with blocks as b, threads as t:
            T.buffer_store(a, 0.0, [b, t])

    assert ("(int64_t)" in lower_to_cuda(function(body), ARCH).text) is wide


def test_launch_facts_come_from_the_code() -> None:
    def body() -> None:
        blocks, threads = launch()
        with blocks, threads, T.attr(0, CLUSTER_DIMS, "2,1,1"):
            emit("griddep_wait")
            emit("grid_sync")

    (kernel,) = lower_to_cuda(function(body), ARCH).kernels
    assert (kernel.cluster, kernel.cooperative, kernel.programmatic) == ((2, 1, 1), True, True)


def test_several_launches_stay_in_order() -> None:
    def body() -> None:
        a = tensor("a", (64,))
        for value in (1.0, 2.0):
            blocks, threads = launch()
            with blocks, threads as t:
                T.buffer_store(a, value, [t])

    source = lower_to_cuda(function(body), ARCH)
    assert [k.name for k in source.kernels] == ["main_kernel", "main_kernel_1"]


def test_unknown_scopes_are_refused() -> None:
    """TVM would print a local array."""

    def body() -> None:
        blocks, threads = launch()
        with blocks, threads as t:
            f = T.alloc_buffer((4,), "float32", scope="local.fragment", layout=None)
            T.buffer_store(f, 0.0, [t])

    with pytest.raises(InternalError, match=r"local\.fragment"):
        lower_to_cuda(function(body), ARCH)


def test_limits_are_errors_of_the_program() -> None:
    def big_block() -> None:
        blocks, threads = launch(threads=2048)
        with blocks, threads:
            emit("sync_threads")

    def big_arena() -> None:
        blocks, threads = launch()
        with blocks, threads as t:
            arena = T.alloc_buffer((300_000,), "uint8", scope="shared.dyn", align=1024, layout=None)
            T.buffer_store(arena, 0, [t])

    def new_op() -> None:
        blocks, threads = launch()
        with blocks, threads:
            emit("setmaxnreg_dec", regs=24)

    with pytest.raises(TooManyThreads):
        lower_to_cuda(function(big_block), ARCH)
    with pytest.raises(SharedMemoryExceeded, match="300000"):
        lower_to_cuda(function(big_arena), ARCH)
    with pytest.raises(OpNeedsArch, match="sm_90a"):
        lower_to_cuda(function(new_op), arch_of("sm_80"))


CASTS = [
    ("float16", "float32"), ("float32", "float16"), ("bfloat16", "float32"), ("float32", "bfloat16"),
    ("float8_e4m3fn", "float32"), ("float32", "float8_e4m3fn"), ("float8_e5m2", "float16"), ("float16", "float8_e5m2"),
    ("float8_e4m3fn", "bfloat16"), ("bfloat16", "float8_e4m3fn"), ("int8", "float32"), ("float32", "int8"),
    ("float16", "bfloat16"), ("uint8", "float16"), ("int32", "bfloat16"), ("int64", "float64"),
]  # fmt: skip


@pytest.mark.nvcc
def test_types_and_casts_compile() -> None:
    """Scalar and vector copies and casts of every type the language has, in one text for each width."""

    def body() -> None:
        pairs = [(tensor(f"x{i}", (4096,), a), tensor(f"y{i}", (4096,), b)) for i, (a, b) in enumerate(CASTS)]
        blocks, threads = launch()
        with blocks, threads as t:
            for (x, y), (_, to) in zip(pairs, CASTS, strict=True):
                T.buffer_store(y, tirx.Cast(to, x[t]), [t])
                for lanes in (2, 4):
                    with T.vectorized(0, lanes) as v:
                        T.buffer_store(y, tirx.Cast(to, x[t * lanes + v]), [t * lanes + v])
            for x, _ in pairs:
                for lanes in (2, 4, 8, 16):
                    if lanes * int(str(x.ty.dtype).split("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz")) <= 128:
                        with T.vectorized(0, lanes) as v:
                            T.buffer_store(x, x[t * lanes + v + 2048], [t * lanes + v])

    compile_cuda(lower_to_cuda(function(body), ARCH).text, ARCH)


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_arithmetic_compiles(dtype: str) -> None:
    unary = (tirx.exp, tirx.log, tirx.sqrt, tirx.rsqrt, tirx.tanh, tirx.floor, tirx.abs, tirx.exp2, tirx.sin)

    def body() -> None:
        x, y = tensor("x", (64,), dtype), tensor("y", (64, 32), dtype)
        blocks, threads = launch()
        with blocks, threads as t:
            values = [f(x[t]) for f in unary]
            values += [tirx.max(x[t], x[t + 1]), tirx.min(x[t], x[t + 1]), x[t] * x[t + 1] - x[t] / x[t + 1]]
            values += [
                tirx.Select(x[t] > x[t + 1], x[t], tirx.const(float("-inf"), dtype)),
                tirx.const(float("nan"), dtype),
            ]
            for i, e in enumerate(values):
                T.buffer_store(y, e, [t, i])

    compile_cuda(lower_to_cuda(function(body), ARCH).text, ARCH)


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"])
def test_special_constants_compile(dtype: str) -> None:
    values = (float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1e-40, 1.5)

    def body() -> None:
        y = tensor("y", (64, 8), dtype)
        blocks, threads = launch()
        with blocks, threads as t:
            for i, v in enumerate(values):
                T.buffer_store(y, tirx.FloatImm(dtype, v), [t, i])

    compile_cuda(lower_to_cuda(function(body), ARCH).text, ARCH)


def test_a_failing_pass_of_tvm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        n = tirx.Var("n", "int32")
        a = tensor("a", (n,))
        blocks, threads = launch()
        with blocks, threads, T.vectorized(0, n) as i:  # TVM's vectorizer wants to know how far
            T.buffer_store(a, 1.0, [i])

    monkeypatch.setenv("TILELANG_REPORT_DIR", str(tmp_path))
    with pytest.raises(InternalError, match=r"internal error in tirx\.VectorizeLoop: ") as info:
        lower_to_cuda(function(body), ARCH)
    report = Path(info.value.report).read_text()
    assert "in front of tirx.VectorizeLoop:\n" in report and "T.vectorized" in report
