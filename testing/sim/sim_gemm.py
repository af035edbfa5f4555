# SPDX-License-Identifier: Apache-2.0
"""A hand-built bf16 GEMM (TMA ring, producer warp, two consumer warpgroups), and planted faults for it."""

from __future__ import annotations

from typing import Any

from sim_build import Arena, at, bind, dev, encode, local, named, when
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.ir.device_ops import advance_descriptor, registers

__all__ = ["build_gemm"]

BM, BN, BK, STAGES = 128, 128, 64, 4


def build_gemm(fault: str = "") -> Any:
    """D[M, N] = A[M, K] @ B[N, K]^T. `fault` names a planted mistake; "" is the correct kernel."""
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("gemm")
        m, n, k = (tirx.Var(x, "int32") for x in "MNK")
        a, b = (
            T.arg("A", T.buffer((m, k), "bfloat16", layout=None)),
            T.arg("B", T.buffer((n, k), "bfloat16", layout=None)),
        )
        d = T.arg("D", T.buffer((m, n), "bfloat16", layout=None))
        maps = [
            encode("a_map", a, [k, m], [k * 2], [BK, BM]),
            encode("b_map", b, [k, n], [k * 2], [BK, BN]),
            encode("d_map", d, [n, m], [n * 2], [64, 64]),
        ]
        with (
            T.launch_thread("blockIdx.x", (n + BN - 1) // BN) as bx,
            T.launch_thread("blockIdx.y", (m + BM - 1) // BM) as by,
            T.launch_thread("threadIdx.x", 384) as tx,
        ):
            _Gemm(named("bx", bx), named("by", by), named("tx", tx), maps, k, fault).emit()
    return ib.get()


class _Gemm:
    def __init__(self, bx: Any, by: Any, tx: Any, maps: list[Any], k: Any, fault: str) -> None:
        self.bx, self.by, self.tx, self.maps, self.k, self.fault = bx, by, tx, maps, k, fault
        arena = Arena(STAGES * (BM + BN) * BK * 2 + BM * BN * 2 + 2 * STAGES * 8)
        self.As = arena.view("As", (STAGES, BM, BK), "bfloat16", 2)
        self.Bs = arena.view("Bs", (STAGES, BN, BK), "bfloat16", 2)
        self.Cs = arena.view("Cs", (BM * BN,), "bfloat16", 2)
        self.full, self.empty = (arena.view(x, (STAGES,), "uint64", 8) for x in ("full", "empty"))

    def has(self, fault: str) -> bool:
        return self.fault == fault

    def emit(self) -> None:
        wg = bind("wg", dev("uniform", self.tx // 128))
        with when(self.tx == 0):
            for s in range(STAGES):
                dev("mbar_init", at(self.full, s), 2 if self.has("full-count") else 1)
                dev("mbar_init", at(self.empty, s), {"empty-count-low": 1, "empty-count-high": 3}.get(self.fault, 2))
            if not self.has("no-init-fence"):
                dev("fence_mbar_init")
        if not self.has("no-init-sync"):
            dev("sync_threads")
        kt = bind("kt", (self.k + (BK - 1)) // BK)
        with T.If(wg == 0):
            with T.Then():
                dev("setmaxnreg_dec", regs=40)
                with when(self.tx == 0):
                    self.producer(kt)
            with T.Else():
                dev("setmaxnreg_inc", regs=232)
                self.consumer(bind("w", wg - 1), kt)

    def producer(self, kt: Any) -> None:
        with T.serial(0, kt) as i:
            s, ph = bind("s", i % STAGES), bind("ph", (i // STAGES) % 2)
            if not self.has("no-empty-wait"):
                dev("mbar_wait", at(self.empty, s), ph if self.has("empty-parity") else 1 - ph)
            nbytes = (BM + BN) * BK * 2
            dev(
                "mbar_expect_tx",
                at(self.full, s),
                {"tx-half": nbytes // 2, "tx-more": nbytes + 128}.get(self.fault, nbytes),
            )
            dev("tma_load_2d", at(self.As, s, 0, 0), self.maps[0], at(self.full, s), i * BK, self.by * BM)
            stage = (s + 1) % STAGES if self.has("load-next-stage") else s
            dev("tma_load_2d", at(self.Bs, stage, 0, 0), self.maps[1], at(self.full, s), i * BK, self.bx * BN)

    def consumer(self, w: Any, kt: Any) -> None:
        t = bind("t", self.tx % 128)
        acc = local("acc", 64)
        with T.unroll(0, 64) as i:
            T.buffer_store(acc, tirx.const(0.0, "float32"), [i])
        swizzle = 64 if self.has("desc-swizzle") else 128
        with T.serial(0, kt) as i:
            s, ph = bind("s", i % STAGES), bind("ph", (i // STAGES) % 2)
            if not self.has("no-full-wait"):
                dev("mbar_wait", at(self.full, s), 1 - ph if self.has("full-parity") else ph)
            da = bind("da", dev("wgmma_desc", at(self.As, s, w * 64, 0), 16, 1024, swizzle=swizzle))
            db = bind(
                "db",
                dev("wgmma_desc", at(self.Bs, (s + 1) % STAGES if self.has("read-next-stage") else s, 0, 0), 16, 1024),
            )
            if not self.has("no-wgmma-fence"):
                dev("wgmma_fence")
            for kk in range(BK // 16):
                right = dev("wgmma_advance", db, bytes=kk * 32)
                dev("wgmma_ss", acc.data, advance_descriptor(da, kk * 32), right, n=BN)
            if not self.has("no-commit"):
                dev("wgmma_commit")
            if not self.has("no-wgmma-wait"):
                dev("wgmma_wait", acc.data, pending=1 if self.has("wgmma-wait-1") else 0, regs=registers(acc))
            if not self.has("no-empty-arrive"):
                with when(t == 0):
                    dev("mbar_arrive", at(self.empty, s))
        self.epilogue(acc, w, t)

    def epilogue(self, acc: Any, w: Any, t: Any) -> None:
        row = bind("row", (t // 32) * 16 + (t % 32) // 4)
        with T.unroll(0, 16) as j, T.unroll(0, 2) as h, T.vectorized(0, 2) as v:
            r, col = row + h * 8, (j % 8) * 8 + (t % 4) * 2 + v
            chunk = (col // 8) ^ (r % (4 if self.has("epilogue-swizzle") else 8))
            off = (w * 2 + j // 8) * 4096 + r * 64 + chunk * 8 + col % 8
            T.buffer_store(self.Cs, tirx.Cast("bfloat16", acc[j * 4 + h * 2 + v]), [off])
        if not self.fault.startswith("no-proxy-fence") and not self.has("late-proxy-fence"):
            dev("fence_proxy_async")
        if not self.has("no-epilogue-barrier"):
            dev("bar_sync", w + 1, 128)
        if self.has("late-proxy-fence"):
            dev("fence_proxy_async")
        with when(t == 0):
            shift = 8 if self.has("store-shifted") else 0
            for half in range(2):
                src = at(self.Cs, (w * 2 + half) * 4096)
                dev("tma_store_2d", self.maps[2], src, self.bx * BN + half * 64 + shift, self.by * BM + w * 64)
            dev("bulk_commit")
            if not self.has("no-bulk-wait"):
                dev("bulk_wait_read")
