# SPDX-License-Identifier: Apache-2.0
"""Small device programs with one fault each, and programs that look like them and are right.

`FAULTY` maps a name to a `Case` with the kinds of reports that may name the fault; `RIGHT` to cases without any. A
body takes the thread, the block, A and B (256 float32 each), and tensor maps of both as (8, 32) with boxes of (8, 32).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim_build import Arena, at, bind, dev, encode, f32, i32, local, named, when
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.ir.device_ops import device_op

__all__ = ["FAULTY", "RIGHT", "Case", "build"]


@dataclass(frozen=True)
class Case:
    """`launches`: bodies that one function runs one after the other."""

    launches: tuple[Callable[..., None], ...]
    kinds: frozenset[str] = frozenset()
    threads: int = 64
    grid: int = 1
    cluster: int = 0


FAULTY: dict[str, Case] = {}
RIGHT: dict[str, Case] = {}


def case(*kinds: str, then: Callable[..., None] | None = None, **more: Any) -> Callable[..., Any]:
    """Registers a body under the name of its function; `then` is a second launch."""

    def register(body: Callable[..., None]) -> Callable[..., None]:
        launches = (body,) if then is None else (body, then)
        name = body.__name__.strip("_").replace("_", " ")
        assert name not in FAULTY and name not in RIGHT, name
        (FAULTY if kinds else RIGHT)[name] = Case(launches, frozenset(kinds), **more)
        return body

    return register


def build(what: Case) -> Any:
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("kernel")
        a, b = (T.arg(n, T.buffer((256,), "float32", layout=None)) for n in "AB")
        maps = [encode(n, x, [32, 8], [128], [32, 8], 0, "float32") for n, x in (("amap", a), ("bmap", b))]
        for body in what.launches:
            if what.cluster:
                with (
                    T.launch_thread("clusterCtaIdx.x", what.cluster),
                    T.launch_thread("blockIdx.x", what.grid) as bx,
                    T.launch_thread("threadIdx.x", what.threads) as tx,
                ):
                    body(named("tx", tx), named("bx", bx), a, b, *maps)
            else:
                with T.launch_thread("blockIdx.x", what.grid) as bx, T.launch_thread("threadIdx.x", what.threads) as tx:
                    body(named("tx", tx), named("bx", bx), a, b, *maps)
    return ib.get()


def put(buffer: Any, value: Any, *index: Any) -> None:
    T.buffer_store(buffer, value, list(index))


def otherwise(condition: Any, then: Callable[[], None], orelse: Callable[[], None]) -> None:
    with T.If(condition):
        with T.Then():
            then()
        with T.Else():
            orelse()


def tile(arena: Arena | None = None) -> tuple[Arena, Any]:
    """A tile of (8, 32) float32."""
    arena = arena or Arena(8192)
    return arena, arena.view("S", (8, 32), "float32", 4, align=128)


def ready(arena: Arena, count: int = 1, name: str = "bar", tx: Any = None) -> Any:
    bar = arena.view(name, (1,), "uint64", 8)
    with when(tx == 0):
        dev("mbar_init", at(bar, 0), count)
        dev("fence_mbar_init")
    dev("sync_threads")
    return bar


def load(s: Any, amap: Any, bar: Any, nbytes: int = 1024) -> None:
    dev("mbar_expect_tx", at(bar, 0), nbytes)
    dev("tma_load_2d", at(s, 0, 0), amap, at(bar, 0), 0, 0)


def store(bmap: Any, s: Any, wait: str = "bulk_wait") -> None:
    dev("tma_store_2d", bmap, at(s, 0, 0), 0, 0)
    dev("bulk_commit")
    if wait:
        dev(wait, pending=0)


def add(place: Any, value: Any, space: str, order: str) -> None:
    T.evaluate(device_op("atomic_add", place, value, dtype="float32", space=space, order=order))


def filled(tx: Any, s: Any, value: Any) -> None:
    for i in range(4):
        put(s, value, i * 2 + tx // 32, tx % 32)


# --- shared memory, plain code


@case("race-wr")
def neighbours_without_a_barrier(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    put(s, A[tx], tx)
    put(B, s[(tx + 1) % 64], tx)


@case("race-rw", "race-wr", "race-ww")
def a_loop_with_one_barrier_of_two(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    with T.serial(0, 3) as i:
        put(s, A[tx + i], tx)
        dev("sync_threads")
        put(B, s[63 - tx], tx)


@case()
def a_loop_with_two_barriers(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    with T.serial(0, 3) as i:
        put(s, A[tx + i], tx)
        dev("sync_threads")
        put(B, s[63 - tx], tx)
        dev("sync_threads")


@case()
def two_buffers_in_turn_with_one_barrier(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(512).view("S", (2, 64), "float32", 4)
    with T.serial(0, 4) as i:
        put(s, A[tx + i], i % 2, tx)
        dev("sync_threads")
        put(B, s[i % 2, 63 - tx], tx)


@case("race-wr", "race-rw", "race-ww", "uninit")
def atomics_beside_plain_reads(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    put(s, f32(0), tx)
    dev("sync_threads")
    add(at(s, tx % 4), A[tx], "shared", "relaxed")
    put(B, s[tx % 4], tx)


@case("race-ww")
def atomics_before_the_zeroes(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    with when(tx == 0):
        put(s, f32(0), 0)
    add(at(s, 0), A[tx], "shared", "relaxed")


@case()
def atomics_between_barriers(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    put(s, f32(0), tx)
    dev("sync_threads")
    add(at(s, tx % 4), A[tx], "shared", "relaxed")
    add(at(s, (tx + 1) % 4), A[tx], "shared", "relaxed")
    dev("sync_threads")
    put(B, s[tx % 4], tx)


@case("uninit")
def half_of_a_tile_is_written(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(512).view("S", (128,), "float32", 4)
    put(s, A[tx], tx)
    dev("sync_threads")
    put(B, s[tx * 2], tx)


@case("race-wr", "race-rw", "race-ww")
def two_buffers_share_bytes(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    arena = Arena(512)
    s = arena.view("S", (64,), "float32", 4)
    arena.top = 128
    r = arena.view("R", (64,), "float32", 4)
    put(s, A[tx], tx)
    dev("sync_threads")
    put(r, A[tx], tx)
    put(B, s[tx], tx)


@case("race-wr")
def lanes_without_a_barrier(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    put(s, A[tx], tx)
    put(B, s[tx ^ 1], tx)


@case()
def lanes_with_a_barrier_of_their_warp(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    put(s, A[tx], tx)
    dev("syncwarp")
    put(B, s[tx ^ 1], tx)


# --- both proxies


@case("proxy-fence")
def a_store_without_a_fence(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s)


@case("proxy-fence")
def a_fence_of_half_of_the_writers(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    with when(tx < 32):
        dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s)


@case("race-wr")
def a_fence_without_a_barrier(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("fence_proxy_async")
    with when(tx == 0):
        store(bmap, s)


@case()
def a_store_behind_fence_and_barrier(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s)


@case("race-rw")
def a_tile_is_written_again_while_it_is_stored(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s, wait="")
    filled(tx, s, A[tx + 1])
    with when(tx == 0):
        dev("bulk_wait", pending=0)


@case("race-rw")
def one_store_may_stay_open_too_many(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s, wait="")
        dev("bulk_wait_read", pending=1)
    dev("sync_threads")
    filled(tx, s, A[tx + 1])
    with when(tx == 0):
        dev("bulk_wait", pending=0)


@case()
def a_tile_is_written_again_behind_the_wait(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    with T.serial(0, 3) as i:
        filled(tx, s, A[tx + i])
        dev("fence_proxy_async")
        dev("sync_threads")
        with when(tx == 0):
            store(bmap, s)
        dev("sync_threads")


@case("race-rw", "race-ww")
def a_load_over_a_tile_that_is_read(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with T.serial(0, 2) as i:
        with when(tx == 0):
            load(s, amap, bar)
        dev("mbar_wait", at(bar, 0), i % 2)
        put(B, s[tx // 32, tx % 32], tx)


@case()
def a_load_over_a_tile_behind_a_barrier(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with T.serial(0, 2) as i:
        with when(tx == 0):
            load(s, amap, bar)
        dev("mbar_wait", at(bar, 0), i % 2)
        put(B, s[tx // 32, tx % 32], tx)
        dev("sync_threads")


# --- mbarriers


@case("race-wr", "race-rw", "race-ww", "uninit", "tx-count", "arrive-count", "exit", "exit-barrier")
def the_same_parity_twice(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with T.serial(0, 2):
        with when(tx == 0):
            load(s, amap, bar)
        dev("mbar_wait", at(bar, 0), 0)
        put(B, s[tx // 32, tx % 32], tx)
        dev("sync_threads")


@case("deadlock")
def a_count_that_nobody_reaches(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, 2, tx=tx)
    with when(tx == 0):
        load(s, amap, bar)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


@case("race-wr", "arrive-count", "exit-barrier", "uninit", "race-rw", "deadlock")
def a_count_that_one_warp_reaches(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    arena, s = tile()
    bar = ready(arena, 32, tx=tx)
    filled(tx, s, A[tx])
    dev("mbar_arrive", at(bar, 0))
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[1 - tx // 32, tx % 32], tx)


@case()
def all_threads_arrive(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    arena, s = tile()
    bar = ready(arena, 64, tx=tx)
    filled(tx, s, A[tx])
    dev("mbar_arrive", at(bar, 0))
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[1 - tx // 32, tx % 32], tx)


@case("tx-count", "race-wr", "exit-barrier", "exit", "uninit", "deadlock")
def fewer_bytes_are_announced_than_come(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with when(tx == 0):
        load(s, amap, bar, 512)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


@case("deadlock")
def more_bytes_are_announced_than_come(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with when(tx == 0):
        load(s, amap, bar, 2048)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


@case("race-wr", "uninit", "race-rw")
def nobody_waits_for_the_load(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with when(tx == 0):
        load(s, amap, bar)
    dev("sync_threads")
    put(B, s[tx // 32, tx % 32], tx)
    with when(tx == 0):
        dev("mbar_wait", at(bar, 0), 0)


@case("barrier")
def an_mbarrier_that_is_none(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    bar = Arena(64).view("bar", (1,), "uint64", 8)
    with when(tx == 0):
        dev("mbar_arrive", at(bar, 0))


@case("barrier-init")
def an_initialisation_that_the_others_do_not_wait_for(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    bar = Arena(64).view("bar", (1,), "uint64", 8)
    with when(tx == 0):
        dev("mbar_init", at(bar, 0), 64)
    dev("syncwarp")
    dev("mbar_arrive", at(bar, 0))
    dev("mbar_wait", at(bar, 0), 0)


@case("barrier-init")
def an_initialisation_without_a_fence(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = arena.view("bar", (1,), "uint64", 8)
    with when(tx == 0):
        dev("mbar_init", at(bar, 0), 1)
    dev("sync_threads")
    with when(tx == 0):
        load(s, amap, bar)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


@case()
def a_thread_arrives_for_its_warp(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    arena, s = tile()
    bar = ready(arena, 2, tx=tx)
    filled(tx, s, A[tx])
    dev("syncwarp")
    with when(tx % 32 == 0):
        dev("mbar_arrive", at(bar, 0))
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[1 - tx // 32, tx % 32], tx)


@case("race-wr")
def a_thread_arrives_for_its_warp_too_early(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    arena, s = tile()
    bar = ready(arena, 2, tx=tx)
    filled(tx, s, A[tx])
    with when(tx % 32 == 0):
        dev("mbar_arrive", at(bar, 0))
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[1 - tx // 32, (tx + 1) % 32], tx)


# --- barriers of threads


@case("divergence")
def a_barrier_for_half_of_a_warp(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with when(tx < 48):
        dev("sync_threads")


@case("deadlock")
def a_barrier_that_one_warp_leaves_out(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with when(tx < 32):
        dev("sync_threads")


@case("barrier-count", "deadlock", "arrive-count")
def a_named_barrier_with_two_counts(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    otherwise(tx < 32, lambda: dev("bar_sync", 1, 64), lambda: dev("bar_sync", 1, 32))


@case("barrier-count", "deadlock")
def a_named_barrier_of_part_of_a_warp(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with when(tx < 32):
        dev("bar_sync", 1, 48)


@case("race-wr", "race-rw", "uninit")
def a_named_barrier_of_the_other_id(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    put(s, A[tx], tx)
    otherwise(tx < 32, lambda: dev("bar_sync", 1, 32), lambda: dev("bar_sync", 2, 32))
    put(B, s[63 - tx], tx)


@case()
def arrive_on_one_side_and_wait_on_the_other(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (32,), "float32", 4)

    def writes() -> None:
        put(s, A[tx], tx)
        dev("bar_arrive", 1, 64)

    def reads() -> None:
        dev("bar_sync", 1, 64)
        put(B, s[63 - tx], tx)

    otherwise(tx < 32, writes, reads)


@case()
def warps_on_both_sides_of_a_barrier_in_a_branch(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    put(s, A[tx], tx)
    otherwise(tx < 32, lambda: dev("sync_threads"), lambda: dev("sync_threads"))
    put(B, s[63 - tx], tx)


@case("divergence")
def a_shuffle_in_a_branch(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with when(tx % 2 == 0):
        put(B, device_op("shfl_xor", A[tx], 1, dtype="float32", width=32, part=False), tx)


# --- cp.async


def copied(tx: Any, A: Any, s: Any, row: int, commit: bool = True) -> None:
    dev("cp_async", at(s, row, tx), at(A, row * 64 + tx), bytes=4, zfill=False)
    if commit:
        dev("cp_async_commit")


@case("race-wr", "uninit")
def one_group_too_many_stays_open(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(1024).view("S", (2, 64), "float32", 4)
    copied(tx, A, s, 0)
    copied(tx, A, s, 1)
    dev("cp_async_wait", pending=1)
    dev("sync_threads")
    put(B, s[1, 63 - tx], tx)
    dev("cp_async_wait", pending=0)


@case()
def the_older_group_is_waited_for(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(1024).view("S", (2, 64), "float32", 4)
    copied(tx, A, s, 0)
    copied(tx, A, s, 1)
    dev("cp_async_wait", pending=1)
    dev("sync_threads")
    put(B, s[0, 63 - tx], tx)
    dev("cp_async_wait", pending=0)


@case("race-wr", "uninit", "exit")
def copies_that_are_not_committed(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(1024).view("S", (2, 64), "float32", 4)
    copied(tx, A, s, 0, commit=False)
    dev("cp_async_wait", pending=0)
    dev("sync_threads")
    put(B, s[0, 63 - tx], tx)


@case("race-wr")
def copies_of_others_without_a_barrier(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(1024).view("S", (2, 64), "float32", 4)
    copied(tx, A, s, 0)
    dev("cp_async_wait", pending=0)
    put(B, s[0, 63 - tx], tx)


@case("race-rw")
def a_copy_over_what_is_read(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(1024).view("S", (2, 64), "float32", 4)
    copied(tx, A, s, 0)
    dev("cp_async_wait", pending=0)
    dev("sync_threads")
    put(B, s[0, 63 - tx], tx)
    copied(tx, A, s, 0)
    dev("cp_async_wait", pending=0)


# --- bounds and alignment


@case("oob")
def a_thread_too_many(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(B, A[tx], tx + 193)


@case("oob")
def an_index_below_zero(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(B, A[tx - 1], tx)


@case()
def an_index_below_zero_behind_a_guard(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(B, tirx.if_then_else(tx > 0, A[tx - 1], f32(0)), tx)


@case("oob")
def a_vector_over_the_end(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with T.vectorized(0, 4) as v:
        put(B, A[tx * 4 + v + 4], tx * 4 + v)


@case("misaligned")
def a_vector_from_an_odd_element(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with when(tx < 60), T.vectorized(0, 4) as v:
        put(B, A[tx * 4 + v + 1], tx * 4 + v)


@case("misaligned")
def a_vector_from_an_odd_element_of_shared_memory(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(2048).view("S", (264,), "float32", 4)
    with T.serial(0, 4) as i:
        put(s, A[tx + i * 64], tx + i * 64)
    dev("sync_threads")
    with when(tx < 60), T.vectorized(0, 4) as v:
        put(B, s[tx * 4 + v + 2], tx * 4 + v)


@case()
def vectors_up_to_the_end(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with T.vectorized(0, 4) as v:
        put(B, A[tx * 4 + v], tx * 4 + v)


@case("oob")
def a_row_too_many_of_shared_memory(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    arena = Arena(1024)
    s, _ = arena.view("S", (64,), "float32", 4), arena.view("R", (64,), "float32", 4)
    put(s, A[tx], tx + 1)


@case("oob")
def a_register_too_many(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 4)
    with T.serial(0, 5) as i:
        put(r, A[tx], i)


@case("misaligned")
def a_box_from_an_odd_column(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with when(tx == 0):
        dev("mbar_expect_tx", at(bar, 0), 1024)
        dev("tma_load_2d", at(s, 0, 0), amap, at(bar, 0), 1, 0)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


@case("misaligned")
def a_tile_that_is_not_aligned(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena = Arena(8192)
    arena.view("pad", (16,), "uint8", 1)
    s = arena.view("S", (8, 32), "float32", 4)
    bar = ready(arena, tx=tx)
    with when(tx == 0):
        load(s, amap, bar)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


@case("oob")
def a_tile_past_the_end_of_shared_memory(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena = Arena(1024)
    bar = ready(arena, tx=tx)
    arena.top = 512
    s = arena.view("S", (4, 32), "float32", 4, align=128)
    with when(tx == 0):
        load(s, amap, bar)
    dev("mbar_wait", at(bar, 0), 0)


@case()
def a_box_outside_of_the_tensor(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with when(tx == 0):
        dev("mbar_expect_tx", at(bar, 0), 1024)
        dev("tma_load_2d", at(s, 0, 0), amap, at(bar, 0), -32, 4)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


# --- registers


@case("uninit")
def a_register_that_some_threads_set(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 1)
    with when(tx < 40):
        put(r, A[tx], 0)
    put(B, r[0], tx)


@case()
def a_register_that_is_read_where_it_is_set(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 4)
    with T.serial(0, 4) as i, when(tx + i < 50):
        put(r, A[tx + i], i)
    with T.serial(0, 4) as i:
        put(B, tirx.if_then_else(tx + i < 50, r[i], f32(0)), tx + i * 64)


@case("uninit")
def one_element_too_few_is_set(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 4)
    with T.serial(0, 4) as i, when(tx + i < 50):
        put(r, A[tx + i], i)
    with T.serial(0, 4) as i:
        put(B, tirx.if_then_else(tx + i < 51, r[i], f32(0)), tx + i * 64)


@case()
def what_nobody_set_is_not_let_out(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r, q = local("r", 2), local("q", 2)
    with when(tx < 32):
        put(r, A[tx], 0)
        put(r, A[tx + 1], 1)
    with T.vectorized(0, 2) as v:
        put(q, r[v] + f32(1), v)
    x = bind("x", q[0] * q[1])
    put(q, device_op("shfl_xor", x, 1, dtype="float32", width=32, part=False), 0)
    with when(tx < 32):
        put(B, q[0], tx)


@case("uninit")
def what_nobody_set_is_let_out(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r, q = local("r", 2), local("q", 2)
    with when(tx < 32):
        put(r, A[tx], 0)
        put(r, A[tx + 1], 1)
    with T.vectorized(0, 2) as v:
        put(q, r[v] + f32(1), v)
    x = bind("x", q[0] * q[1])
    put(q, x, 0)
    with when(tx < 33):
        put(B, q[0], tx)


@case("uninit")
def what_nobody_set_decides(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 1)
    with when(tx < 32):
        put(r, A[tx], 0)
    x = bind("x", r[0] + f32(1))
    with when(x > f32(3)):
        put(B, A[tx], tx)


@case()
def each_thread_has_an_element_of_its_own(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 8)
    put(r, A[tx], tx % 8)
    put(B, r[tx % 8], tx)


@case("uninit")
def each_thread_reads_the_next_element(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 8)
    put(r, A[tx], tx % 8)
    put(B, r[(tx + 1) % 8], tx)


@case("resources", threads=512)
def more_registers_than_there_are(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    dev("setmaxnreg_inc", regs=240)


@case("divergence", threads=128)
def a_budget_for_half_of_a_warpgroup(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with when(tx < 64):
        dev("setmaxnreg_dec", regs=40)


# --- global memory


@case("race-global", grid=2)
def a_block_reads_what_another_writes(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    otherwise(bx == 0, lambda: put(A, f32(1), tx), lambda: put(B, A[tx], tx))


@case("race-global", grid=2)
def a_block_writes_what_another_reads(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    otherwise(bx == 0, lambda: put(B, A[tx], tx), lambda: put(A, f32(1), tx))


@case("race-global", grid=2)
def two_blocks_write_different_values(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(B, A[tx] + tirx.Cast("float32", bx), tx)


@case(grid=2)
def two_blocks_write_the_same_values(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(B, A[tx], tx)


@case(grid=4)
def blocks_work_in_place_on_parts_of_their_own(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with T.serial(0, 3):
        put(A, A[bx * 64 + tx] * f32(2), bx * 64 + tx)


@case("race-global")
def warps_write_what_others_read(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    x = bind("x", A[63 - tx])
    put(A, x + f32(1), tx)


@case()
def warps_write_what_others_have_read(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 1)
    put(r, A[63 - tx], 0)
    dev("sync_threads")
    put(A, r[0] + f32(1), tx)


@case("race-global")
def warps_write_one_element(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    otherwise(tx < 32, lambda: put(B, f32(1), tx), lambda: put(B, f32(2), tx - 32))


@case("race-global")
def lanes_read_what_others_wrote(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(A, f32(1), tx)
    put(B, A[tx ^ 1], tx)


@case()
def lanes_read_what_others_wrote_behind_a_barrier(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(A, f32(1), tx)
    dev("syncwarp")
    put(B, A[tx ^ 1], tx)


@case("race-global")
def a_store_of_the_copy_engine_is_read_too_early(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s, "bulk_wait_read")
    dev("sync_threads")
    put(A, B[tx], tx)
    with when(tx == 0):
        dev("bulk_wait", pending=0)


@case()
def a_store_of_the_copy_engine_is_read_behind_its_end(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s, "bulk_wait_read")
        dev("bulk_wait", pending=0)
    dev("sync_threads")
    put(A, B[tx], tx)


@case("race-global", grid=2)
def two_blocks_store_one_tile(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx + bx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s)


@case("race-global")
def plain_code_writes_into_a_tile_that_is_stored(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        store(bmap, s)
    put(B, f32(7), tx)


@case(grid=2)
def two_blocks_add_one_tile(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    _, s = tile()
    filled(tx, s, A[tx + bx])
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        dev("tma_reduce_add_2d", bmap, at(s, 0, 0), 0, 0)
        dev("bulk_commit")
        dev("bulk_wait", pending=0)


@case("race-global")
def a_load_of_what_others_just_wrote(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    put(A, f32(3), tx)
    with when(tx == 0):
        load(s, amap, bar)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], tx)


@case("race-global", grid=2)
def a_load_of_what_another_block_stores(tx: Any, bx: Any, A: Any, B: Any, amap: Any, bmap: Any) -> None:
    arena, s = tile()
    bar = ready(arena, tx=tx)
    with when(tx == 0):
        load(s, amap, bar)
    dev("mbar_wait", at(bar, 0), 0)
    put(B, s[tx // 32, tx % 32], bx * 64 + tx)
    put(A, f32(5), bx * 64 + tx)


@case("race-global", grid=2)
def sums_are_read_while_blocks_add(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    add(at(A, 0), f32(1), "global", "relaxed")
    put(B, A[0], bx * 64 + tx)


@case("race-global")
def a_sum_and_a_plain_store(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    with when(tx == 40):
        put(B, f32(5), 0)
    add(at(B, 0), f32(1), "global", "relaxed")


@case(grid=3)
def blocks_add_to_one_element(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    add(at(B, tx % 3), A[tx], "global", "relaxed")
    add(at(B, (tx + 1) % 3), A[tx], "global", "relaxed")


def last_block(tx: Any, bx: Any, A: Any, B: Any, fenced: bool, waits: bool) -> None:
    """Every block leaves its part; the one that comes last reads all of them."""
    r = local("r", 1)
    put(A, f32(2), bx * 64 + tx)
    if fenced:
        dev("threadfence")
    if waits:
        dev("sync_threads")
    with when(tx == 0):
        put(r, device_op("atomic_add", at(B, 0), f32(1), dtype="float32", space="global", order="relaxed"), 0)
        with when(r[0] == f32(2)):
            if fenced:
                dev("threadfence")
            with T.serial(0, 3) as i:
                put(B, A[i * 64], 1 + i)


@case(grid=3)
def the_last_block_reads_all_parts(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    last_block(tx, bx, A, B, fenced=True, waits=True)


@case("race-global", grid=3)
def the_last_block_reads_parts_without_a_fence(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    last_block(tx, bx, A, B, fenced=False, waits=True)


@case(grid=2)
def a_release_and_an_acquire(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    def gives() -> None:
        put(A, f32(4), tx)
        dev("sync_threads")
        with when(tx == 0):
            add(at(B, 255), f32(1), "global", "release")

    def takes() -> None:
        seen = device_op("atomic_add", at(B, 255), f32(0), dtype="float32", space="global", order="acquire")
        r = local("r", 1)
        put(r, seen, 0)
        with when(r[0] > f32(0)):
            put(B, A[tx], tx)

    otherwise(bx == 0, gives, takes)


# --- launches


def reads_first(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    r = local("r", 1)
    put(r, A[tx], 0)
    dev("griddep_wait")
    put(B, r[0], tx)


def waits_first(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    dev("griddep_wait")
    put(B, A[tx], tx)


def writes_first(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(A, f32(9), tx)
    dev("griddep_wait")


@case("race-global", then=reads_first)
def a_launch_reads_before_it_waits(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(A, f32(1), tx)
    dev("griddep_launch")


@case("race-global", then=reads_first)
def a_store_behind_the_trigger(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    dev("griddep_launch")
    put(A, f32(1), tx)


@case("race-global", then=writes_first)
def a_launch_writes_before_it_waits(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    dev("griddep_launch")
    put(B, A[tx], tx)
    put(A, A[tx] + f32(1), tx + 128)


@case(then=waits_first)
def a_launch_waits_and_reads(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    dev("griddep_launch")
    put(A, f32(1), tx)


@case(then=lambda tx, bx, A, B, *_: put(B, A[tx], tx))
def a_launch_behind_another(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    put(A, f32(1), tx)


# --- clusters


def to_the_other_block(tx: Any, A: Any, B: Any, bx: Any, first: bool, last: bool) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    if first:
        dev("cluster_arrive")
        dev("cluster_wait")
    dev("store_remote", at(s, tx), 1 - device_op("cluster_rank"), A[tx], dtype="float32")
    if last:
        dev("cluster_arrive")
        dev("cluster_wait")
    else:
        dev("sync_threads")
    put(B, s[tx], bx * 64 + tx)


@case(grid=2, cluster=2)
def blocks_of_a_cluster_send_tiles(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    to_the_other_block(tx, A, B, bx, first=True, last=True)


@case("race-wr", "uninit", "exit", "race-rw", grid=2, cluster=2)
def tiles_of_a_cluster_are_read_too_early(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    to_the_other_block(tx, A, B, bx, first=True, last=False)


@case("oob", grid=2, cluster=2)
def a_block_that_the_cluster_has_not(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    s = Arena(256).view("S", (64,), "float32", 4)
    dev("store_remote", at(s, tx), i32(2), A[tx], dtype="float32")
    dev("cluster_arrive")
    dev("cluster_wait")


@case("barrier", grid=2, cluster=2)
def a_cluster_barrier_is_entered_twice(tx: Any, bx: Any, A: Any, B: Any, *_: Any) -> None:
    dev("cluster_arrive")
    dev("cluster_arrive")
    dev("cluster_wait")
