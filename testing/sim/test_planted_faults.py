# SPDX-License-Identifier: Apache-2.0
"""A race, a deadlock, an access out of bounds and a missing fence in whole kernels, each found at the line that is
marked `<- fault`: in control written by hand, and in pipelines that the compiler made and the test breaks. The whole
kernels are silent under every policy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from damage import without
from tvm import tirx

import tilelang.language as T
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import map_kernels, rebuild
from tilelang.sim import POLICIES, SimResult, simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(17)
BF16 = ml_dtypes.bfloat16


def line_of(program: Callable[..., Any], fault: str) -> int:
    """The line of this file that carries the mark of a fault."""
    lines, start = inspect.getsourcelines(program)
    (found,) = [start + n for n, line in enumerate(lines) if f"<- {fault}" in line]
    return found


def assert_found(result: SimResult, kinds: set[str], program: Callable[..., Any], fault: str) -> None:
    """Some report is of one of these kinds, and has the marked line as its place."""
    places = {(r.kind, r.place.span.line) for r in result.reports if r.place.span is not None}
    assert result.kinds & kinds, result
    assert any(kind in kinds and line == line_of(program, fault) for kind, line in places), (places, str(result))


# -- control written by hand: a warpgroup loads tiles through a ring, another transposes, scales and stores them


def transposer(fault: str = "") -> Any:
    n, stages = 5, 2

    @T.prim_func
    def main(A: T.Tensor((n, 64, 64), "float16"), O: T.Tensor((n, 64, 64), "float16")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((stages, 64, 64), "float16")
            D = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([128] * stages)
            with T.ws(1):
                for k in T.serial(n):
                    T.mbarrier_wait_parity(empty[k % stages], ((k // stages) & 1) ^ 1)
                    T.tma_copy(A[k, :, :], S[k % stages, :, :], barrier=full[k % stages])  # <- race
                    if T.shuffle_elect(128):
                        T.mbarrier_arrive(full[k % stages])
            with T.ws(0):
                for k in T.serial(n):
                    T.mbarrier_wait_parity(full[k % stages], (k // stages) & 1)  # <- deadlock
                    if fault == "race":
                        T.mbarrier_arrive(empty[k % stages])
                    for i, j in T.Parallel(64, 64):
                        if fault == "oob":
                            D[i + k, j] = S[k % stages, j, i] * T.float16(2.0)  # <- oob
                        else:
                            D[i, j] = S[k % stages, j, i] * T.float16(2.0)
                    if fault not in ("race", "deadlock"):
                        T.mbarrier_arrive(empty[k % stages])
                    T.tma_copy(D, O[k, :, :])  # <- fence
                    T.tma_store_arrive()
                    T.tma_store_wait(0)

    device = lower(main, "sm_90a")
    return without(device, "fence_proxy_async") if fault == "fence" else device


def run_transposer(fault: str, policy: str) -> tuple[SimResult, bool]:
    a = RNG.standard_normal((5, 64, 64)).astype(np.float16)
    o = np.zeros_like(a)
    result = simulate(transposer(fault), [a, o], policy=policy)
    return result, bool((o == 2 * a.transpose(0, 2, 1)).all())


@pytest.mark.parametrize("policy", POLICIES)
def test_control_by_hand_is_right_and_silent(policy: str) -> None:
    result, right = run_transposer("", policy)
    assert not result.reports and right, result


BY_HAND = {"race": {"race-rw"}, "deadlock": {"deadlock"}, "oob": {"oob"}, "fence": {"proxy-fence"}}


@pytest.mark.parametrize("policy", ["rr", "random", "adv-first", "adv-last"])
@pytest.mark.parametrize("fault", BY_HAND)
def test_a_fault_in_control_by_hand(fault: str, policy: str) -> None:
    result, _ = run_transposer(fault, policy)
    assert_found(result, BY_HAND[fault], transposer, fault)


# -- a pipeline of the compiler, broken in its device program


def product() -> Any:
    """A ring of three slots over six steps, two warpgroups, a ragged result of odd rows: guarded stores of threads."""
    M, N, K, bm, bn, bk = 100, 91, 192, 128, 128, 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((N, K), "bfloat16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((bm, bk), "bfloat16")
            Bs = T.alloc_shared((bn, bk), "bfloat16")
            acc = T.alloc_fragment((bm, bn), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // bk, num_stages=3):
                T.copy(A[0, k * bk], As)  # <- race
                T.copy(B[0, k * bk], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)  # <- deadlock
            T.copy(acc, C[0, 0])  # <- oob

    return lower(main, "sm_90a", CompileOptions(persistent=False))


def scaled() -> Any:
    """A result that threads write to shared memory, and the copy engine from there."""
    M, N, K, bk = 128, 128, 192, 64

    @T.prim_func
    def main(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((N, K), "bfloat16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            As, Bs = T.alloc_shared((M, bk), "bfloat16"), T.alloc_shared((N, bk), "bfloat16")
            acc, tile = T.alloc_fragment((M, N), "float32"), T.alloc_shared((M, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // bk, num_stages=2):
                T.copy(A[0, k * bk], As)
                T.copy(B[0, k * bk], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            for i, j in T.Parallel(M, N):
                tile[i, j] = acc[i, j] * 2.0
            T.copy(tile, C)  # <- fence

    return lower(main, "sm_90a", CompileOptions(persistent=False))


def unguarded(func: Any) -> Any:
    """The function without the guards of stores to tensors."""

    def bare(stmt: Any) -> Any:
        stores = isinstance(stmt, tirx.IfThenElse) and isinstance(stmt.then_case, tirx.BufferStore)
        return stmt.then_case if stores and stmt.then_case.buffer.name == "C" else stmt

    return map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, bare)))


def inputs(broken: str) -> list[np.ndarray]:
    a_shape, b_shape, c_shape = (
        ((128, 192), (128, 192), (128, 128)) if broken == "fence" else ((100, 192), (91, 192), (100, 91))
    )
    a, b = RNG.integers(-4, 5, a_shape).astype(BF16), RNG.integers(-4, 5, b_shape).astype(BF16)
    return [a, b, np.zeros(c_shape, np.float32)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kernel", [product, scaled])
def test_pipelines_of_the_compiler_are_right_and_silent(kernel: Callable[[], Any], policy: str) -> None:
    a, b, c = inputs("fence" if kernel is scaled else "")
    result = simulate(kernel(), [a, b, c], policy=policy)
    assert not result.reports, result
    want = a.astype(np.float32) @ b.astype(np.float32).T
    assert (c == (2 * want if kernel is scaled else want)).all()


def broken_by(func: Any, fault: str) -> Any:
    match fault:
        case "race":  # the producer fills slots that are still read
            return without(func, "mbar_wait", only=0)
        case "deadlock":  # the producer never announces what it loads
            return without(func, "mbar_expect_tx")
        case "fence":  # the copy engine reads what threads have just written
            return without(func, "fence_proxy_async")
        case _:
            return unguarded(func)


PIPELINES = {"race": {"race-rw", "race-ww"}, "deadlock": {"deadlock"}, "oob": {"oob"}, "fence": {"proxy-fence"}}


@pytest.mark.parametrize("policy", ["rr", "random", "adv-first", "adv-last"])
@pytest.mark.parametrize("fault", PIPELINES)
def test_a_fault_in_a_pipeline_of_the_compiler(fault: str, policy: str) -> None:
    kernel = scaled if fault == "fence" else product
    result = simulate(broken_by(kernel(), fault), inputs(fault), policy=policy)
    assert_found(result, PIPELINES[fault], kernel, fault)


def test_what_is_broken_is_there_in_the_first_place() -> None:
    ops = {op.name for op in map(DeviceOp.from_node, _statements(product())) if op is not None}
    assert {"mbar_wait", "mbar_expect_tx", "tma_load_2d", "wgmma_commit"} <= ops


def _statements(func: Any) -> list[Any]:
    found: list[Any] = []
    map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, lambda s: found.append(s) or s)))
    return found
