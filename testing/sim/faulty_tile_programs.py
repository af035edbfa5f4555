# SPDX-License-Identifier: Apache-2.0
"""Tile programs with one fault each, at the line that carries the mark `<- fault`, and right ones that look like them.

A factory takes whether it is to be faulty. `PROGRAMS` maps its name to the factory and the kinds of reports that may
name the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilelang.language as T

__all__ = ["PROGRAMS"]

PROGRAMS: dict[str, tuple[Callable[[bool], Any], frozenset[str]]] = {}


def program(*kinds: str) -> Callable[..., Any]:
    def register(factory: Callable[[bool], Any]) -> Callable[[bool], Any]:
        PROGRAMS[factory.__name__] = factory, frozenset(kinds)
        return factory

    return register


@program("oob")
def ragged_edge_without_a_guard(faulty: bool) -> Any:
    n = 200

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            i = bx * 64 + tx
            if faulty:
                B[i] = A[i] * 2.0  # <- fault
            elif i < n:
                B[i] = A[i] * 2.0

    return main


@program("uninit")
def a_variable_of_some_threads(faulty: bool) -> Any:
    @T.prim_func
    def main(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            v = T.alloc_var("int32")
            if not faulty:
                v = 0
            if tx < 5:
                v = tx
            B[tx] = v  # <- fault

    return main


@program("uninit")
def an_array_of_some_threads(faulty: bool) -> Any:
    last = 60 if faulty else 64

    @T.prim_func
    def main(A: T.Tensor((64, 4), "float32"), B: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            r = T.alloc_local((4,), "float32")
            for k in T.serial(4):
                if tx < last:
                    r[k] = A[tx, k]
            for k in T.serial(4):
                B[tx, k] = r[k]  # <- fault

    return main


@program("race-global")
def a_neighbour_of_another_block(faulty: bool) -> Any:
    reach = 64 if faulty else 0

    @T.prim_func
    def main(A: T.Tensor((256,), "float32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            A[bx * 64 + tx] = A[(bx * 64 + tx + reach) % 256] + 1.0  # <- fault

    return main


@program("race-global")
def sums_that_are_read_at_once(faulty: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((256,), "int32"), S: T.Tensor((1,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            T.atomic_add(S[0], A[bx * 64 + tx])
            if tx == 0:
                if faulty:
                    B[bx] = S[0]  # <- fault
                else:
                    B[bx] = T.atomic_load(S[0], "acquire") * 0

    return main


@program("race-global")
def a_launch_that_does_not_wait(faulty: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), W: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.pdl_trigger()
            W[tx] = A[tx] * 2.0
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            r = T.alloc_local((1,), "float32")
            if faulty:
                r[0] = W[63 - tx]  # <- fault
                T.pdl_sync()
            else:
                T.pdl_sync()
                r[0] = W[63 - tx]
            B[tx] = r[0]

    return main


@program("race-global")
def a_stored_tile_that_is_read_back(faulty: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), W: T.Tensor((64, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64, 64), "float32")
            for i, j in T.Parallel(64, 64):
                S[i, j] = A[i, j] + 1.0
            T.tma_copy(S, W)
            T.tma_store_arrive()
            T.tma_store_wait(0, read=faulty)
            T.sync_threads()
            if tx < 64:
                B[tx] = W[tx, 0]  # <- fault

    return main


@program("race-wr", "uninit", "race-rw", "race-ww")
def a_load_that_nobody_waits_for(faulty: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64, 64), "float32")
            full = T.alloc_barrier(1)
            T.tma_copy(A, S, barrier=full)
            if tx == 0:
                T.mbarrier_arrive(full)
            if not faulty:
                T.barrier_wait(full, 0)
            for i, j in T.Parallel(64, 64):
                B[i, j] = S[j, i]  # <- fault
            if faulty:
                T.barrier_wait(full, 0)

    return main


@program("deadlock")
def a_phase_that_never_ends(faulty: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64, 64), "float32")
            full = T.alloc_barrier(1)
            T.tma_copy(A, S, barrier=full)
            if tx == 0:
                T.mbarrier_arrive(full)
            T.barrier_wait(full, 0)
            if faulty:
                T.barrier_wait(full, 1)  # <- fault
            for i, j in T.Parallel(64, 64):
                B[i, j] = S[j, i]

    return main


@program("race-wr", "uninit")
def a_group_of_copies_too_few(faulty: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((2, 256), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((2, 256), "float32")
            T.async_copy(A[0, :], S[0, :])
            T.async_copy(A[1, :], S[1, :])
            T.ptx_wait_group(1 if faulty else 0)
            for i in T.Parallel(256):
                B[i] = S[1, 255 - i]  # <- fault
            T.ptx_wait_group(0)

    return main
