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
