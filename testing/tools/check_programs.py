# SPDX-License-Identifier: Apache-2.0
"""Programs with barriers of their own for `tilelang check`; each factory but `right` has one deliberate fault."""

from __future__ import annotations

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[1])
def exchange(wait=True, fence=True, parity=0, last=64):
    """The first warpgroup writes a tile, the second stores it with the copy engine."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64, 64), "float32")
            ready = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            if tx < 128:
                for k in T.serial(last // 2):
                    S[k * 2 + tx // 64, tx % 64] = A[tx % 64, 0] + k  # fault: oob
                if fence:
                    T.fence_proxy_async()
                T.mbarrier_arrive(ready)
            else:
                if wait:
                    T.barrier_wait(ready, parity)  # fault: deadlock
                T.tma_copy(S, O)  # fault: race
                T.tma_store_arrive()
                T.tma_store_wait(0)

    return main


@tilelang.jit(out_idx=[1])
def scale(n, factor=2.0, block=64):
    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i in T.Parallel(block):
                y[bx * block + i] = x[bx * block + i] * factor

    return main


@tilelang.jit
def total(n, block=64):
    """Blocks add to one element together."""

    @T.prim_func
    def main(x: T.Tensor((n,), "int32"), y: T.Tensor((1,), "int32")):
        with T.Kernel(T.ceildiv(n, block), threads=64) as bx:
            for i in T.Parallel(block):
                T.atomic_add(y[0], x[bx * block + i])

    return main


@tilelang.jit(out_idx=[1])
def persistent(tiles, block=64, blocks=4):
    """Few blocks walk over many tiles."""

    @T.prim_func
    def main(x: T.Tensor((tiles, block), "float32"), y: T.Tensor((tiles, block), "float32")):
        with T.Kernel(blocks, threads=64) as bx:
            for tile in T.serial(T.ceildiv(tiles, blocks)):
                if tile * blocks + bx < tiles:
                    for i in T.Parallel(block):
                        y[tile * blocks + bx, i] = x[tile * blocks + bx, i] + 1.0

    return main


@tilelang.jit
def mirrored(threads=32):
    """Blocks read what others wrote, behind a barrier of the grid."""

    @T.prim_func
    def main(x: T.Tensor((4, 32), "int32"), w: T.Tensor((4, 32), "int32"), y: T.Tensor((4, 32), "int32")):
        with T.Kernel(4, threads=threads) as bx:
            t = T.get_thread_binding()
            w[bx, t] = x[bx, t] * 2
            T.sync_grid()
            y[bx, t] = w[3 - bx, 31 - t]

    return main


@tilelang.jit(out_idx=[1])
def scaled_part(block=64):
    """A symbol of a shape, and two scalars."""
    M = T.dynamic("M")

    @T.prim_func
    def main(x: T.Tensor((M,), "float32"), y: T.Tensor((M,), "float32"), alpha: T.float32, n: T.int32):
        with T.Kernel(T.ceildiv(M, block), threads=64) as bx:
            for i in T.Parallel(block):
                if bx * block + i < M:
                    y[bx * block + i] = T.if_then_else(bx * block + i < n, x[bx * block + i] * alpha, 0.0)

    return main


@tilelang.jit
def at_an_address():
    @T.prim_func
    def main(p: T.ptr, y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            x = T.make_tensor(p, (64,), "float32")
            for i in T.Parallel(64):
                y[i] = x[i]

    return main


@tilelang.jit
def spinning(flag=7):
    """The second warp waits for a flag; which one it waits for decides whether it comes."""

    @T.prim_func
    def main(F: T.Tensor((1,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx == 0:
                T.atomic_max(F[0], 7)
            if tx >= 32:
                while T.atomic_load(F[0], memory_order="acquire") != flag:  # fault: livelock
                    T.device_assert(True)
            O[tx] = tx

    return main


@tilelang.jit
def endless():
    @T.prim_func
    def main(O: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            v = T.alloc_var("int32", 1)
            while v < 100:  # fault: timeout
                v = v * 2 % 64
            O[tx] = v

    return main


@tilelang.jit
def half_set():
    @T.prim_func
    def main(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            v = T.alloc_var("int32")
            if tx < 5:
                v = tx
            B[tx] = v  # fault: uninit

    return main


@tilelang.jit
def of_size(n):
    @T.prim_func
    def main(B: T.Tensor((n,), "int32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < n:
                    B[bx * 64 + i] = i

    return main


@tilelang.jit
def in_part(n=64, most=32):
    """Writes the first `most` elements of its output."""

    @T.prim_func
    def main(x: T.Tensor((n,), "float32")):
        y = T.empty((n,), "float32")
        with T.Kernel(T.ceildiv(n, 16), threads=16) as bx:
            for i in T.Parallel(16):
                if bx * 16 + i < most:
                    y[bx * 16 + i] = x[bx * 16 + i]
        return y

    return main
