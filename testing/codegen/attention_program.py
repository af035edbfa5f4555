# SPDX-License-Identifier: Apache-2.0
"""Flash attention forward (D=128, bfloat16, sm_90a) written directly at level 4, the hardest text code generation
must carry.

Persistent blocks with a dynamic scheduler, one TMA producer thread, two consumer warpgroups; S = Q K_j^T is issued
together with O += P V_{j+1}; lazy rescale; turn barriers between the warpgroups; the last P V of a tile goes with the
first Q K of the next; masks only in a peeled loop; stmatrix and TMA store; log-sum-exp. The compiler's own schedule
is tested elsewhere: this fixture holds the printer, the device-op table and ptxas to a known-good shape.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.ir.device_ops import advance_descriptor, device_op
from tilelang.ir.tensor_map import TensorMapSpec, tensor_map

__all__ = ["attention"]

D, BM, BN, STAGES, LAZY, NEG_INF = 128, 128, 128, 2, 8.0, float("-inf")
SMEM_BYTES = 3 * 65536 + 256
TILE_BYTES = 32768  # one 128 x 128 bfloat16 tile


def dev(op: str, *args: Any, **statics: Any) -> Any:
    """A device op in the builder: emitted when it returns nothing, else an expression."""
    made = device_op(op, *args, **statics)
    return T.evaluate(made.value) if isinstance(made, tirx.Evaluate) else made


def named(name: str, value: Any) -> Any:
    IRBuilder.name(name, value)
    return value


def bind(name: str, value: Any) -> Any:
    return named(name, T.bind(value))


def once(name: str, value: Any) -> Any:
    """Computed once; not for uniform values."""
    return bind(name, dev("keep", value))


def f32(v: float) -> Any:
    return tirx.const(float(np.float32(v)), "float32")  # rounded here: TVM prints the double


def at(buf: Any, *idx: Any) -> Any:
    return tirx.address_of(buf[idx])


div, mod = tirx.truncdiv, tirx.truncmod  # operands are never negative


@contextlib.contextmanager
def when(cond: Any) -> Iterator[None]:
    with T.If(cond), T.Then():
        yield


class Regs:
    """A per-thread array; `x[i] = e` emits a store, `.v` is element 0 (a mutable scalar)."""

    def __init__(self, name: str, n: int, dtype: str, init: Any = None) -> None:
        self.buf = named(name, T.alloc_buffer((n,), dtype, scope="local", layout=None))
        self.dtype = dtype
        if init is not None:
            self.v = init

    def __getitem__(self, i: Any) -> Any:
        return self.buf[i]

    def __setitem__(self, i: Any, e: Any) -> None:
        T.buffer_store(self.buf, tirx.const(e, self.dtype) if isinstance(e, int | float) else e, [i])

    @property
    def v(self) -> Any:
        return self[0]

    @v.setter
    def v(self, e: Any) -> None:
        self[0] = e

    def flip(self) -> None:
        self.v = self.v ^ 1


class Ring:
    """Stage and parity of an mbarrier ring as loop-carried scalars (cheaper than deriving them from a counter)."""

    def __init__(self, name: str, full: Any, empty: Any, parity: int) -> None:
        self.full, self.empty = full, empty
        self.stage = Regs(f"{name}_stage", 1, "int32", 0)
        self.parity = Regs(f"{name}_parity", 1, "int32", parity)

    @property
    def s(self) -> Any:
        return self.stage.v

    @property
    def p(self) -> Any:
        return self.parity.v

    def advance(self) -> None:
        self.stage.v = self.s + 1
        with when(self.s == STAGES):
            self.stage.v = 0
            self.parity.flip()


@dataclass
class Problem:
    """Parameters of the function, as the kernel sees them."""

    causal: bool
    B: Any
    SQ: Any
    SKV: Any
    H: Any
    lse: Any
    sched: Any
    scale: Any
    grid: Any
    n_m: Any
    total: Any
    group: Any
    per_kv: Any
    maps: dict[str, Any]

    def coords(self, tile: Any) -> tuple[Any, Any]:
        """Tile -> (row block, batch * head); causal: heads in groups for L2, row blocks from long to short."""
        if not self.causal:
            return mod(tile, self.n_m), div(tile, self.n_m)
        per = self.group * self.n_m
        g = div(tile, per)
        r, gc = tile - g * per, tirx.min(self.group, self.B * self.H - g * self.group)
        return self.n_m - 1 - div(r, gc), g * self.group + mod(r, gc)

    def blocks(self, mb: Any) -> Any:
        """Number of kv blocks of a row block."""
        if not self.causal:
            return div(self.SKV + (BN - 1), BN)
        return tirx.max(div(tirx.min(self.SKV, (mb + 1) * BM + self.SKV - self.SQ) + (BN - 1), BN), 1)


def _map(name: str, buf: Any, seq: Any, heads: Any, batch: Any, rows: int) -> Any:
    """(64, S, D/64, H, B) over [B, S, H, D]: one box is a [D/64][rows][64] tile, 128-byte swizzled."""
    dims = (64, seq, D // 64, heads, batch)
    strides = (heads * (D * 2), 128, D * 2, seq * heads * (D * 2))
    var, stmts = tensor_map(
        name, TensorMapSpec(buf, "bfloat16", dims, strides, (64, rows, D // 64, 1, 1), l2_promotion=256)
    )
    T.bind(stmts[0].value, var=var)
    T.evaluate(stmts[1].value)
    return tirx.address_of(var)


def attention(causal: bool = False) -> Any:
    """The level-4 function."""
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("fa_fwd")
        B, SQ, SKV, H, HK = (tirx.Var(n, "int32") for n in ("B", "Sq", "Skv", "H", "Hk"))

        def tensor(name: str, seq: Any, heads: Any) -> Any:
            return T.arg(name, T.buffer((B, seq, heads, D), "bfloat16", layout=None))

        q, k, v, o = tensor("q", SQ, H), tensor("k", SKV, HK), tensor("v", SKV, HK), tensor("o", SQ, H)
        lse = T.arg("lse", T.buffer((B * H, SQ), "float32", layout=None))
        sched = T.arg("sched", T.buffer((2,), "int32", layout=None))
        scale = T.arg("scale_log2", tirx.Var("scale_log2", "float32"))
        names = ("grid", "n_m", "total", "group", "heads_per_kv")
        grid, n_m, total, group, per_kv = (T.arg(n, tirx.Var(n, "int32")) for n in names)
        maps = {
            "q": _map("q_map", q, SQ, H, B, 64),
            "k": _map("k_map", k, SKV, HK, B, BN),
            "v": _map("v_map", v, SKV, HK, B, BN),
            "o": _map("o_map", o, SQ, H, B, 64),
        }
        problem = Problem(causal, B, SQ, SKV, H, lse, sched, scale, grid, n_m, total, group, per_kv, maps)
        bounds = T.attr(0, "tirx.launch_bounds_min_blocks_per_sm", 1)
        with T.launch_thread("blockIdx.x", grid) as bx, T.launch_thread("threadIdx.x", 384) as tx, bounds:
            _Block(problem, named("bx", bx), named("tx", tx)).emit()
    return ib.get()


class _Block:
    """What all roles of a block share: the arena and its barriers."""

    def __init__(self, problem: Problem, bx: Any, tx: Any) -> None:
        self.p, self.bx, self.tx = problem, bx, tx
        self.arena = named("smem", T.alloc_buffer((SMEM_BYTES,), "uint8", scope="shared.dyn", align=1024, layout=None))
        self.at_byte = 0
        self.Qs = self.view("Qs", (2, 2, 2, 64, 64), "bfloat16")  # buffer, warpgroup, half of D, row, column
        self.Ks = self.view("Ks", (STAGES, 2, BN, 64), "bfloat16")
        self.Vs = self.view("Vs", (STAGES, 2, BN, 64), "bfloat16")
        self.fullQ, self.emptyQ = self.view("fullQ", (2, 2), "uint64"), self.view("emptyQ", (2, 2), "uint64")
        self.fullK, self.emptyK = self.view("fullK", (STAGES,), "uint64"), self.view("emptyK", (STAGES,), "uint64")
        self.fullV, self.emptyV = self.view("fullV", (STAGES,), "uint64"), self.view("emptyV", (STAGES,), "uint64")
        self.fullT, self.emptyT = self.view("fullT", (1,), "uint64"), self.view("emptyT", (1,), "uint64")
        self.slot = self.view("slot", (1,), "int32")

    def view(self, name: str, shape: tuple[int, ...], dtype: str) -> Any:
        size = {"bfloat16": 2, "uint64": 8, "int32": 4}[dtype]
        offset, self.at_byte = self.at_byte // size, self.at_byte + math.prod(shape) * size
        return named(
            name, T.decl_buffer(shape, dtype, data=self.arena.data, elem_offset=offset, scope="shared.dyn", layout=None)
        )

    def emit(self) -> None:
        wg = bind("wg", dev("uniform", div(self.tx, 128)))
        with when(self.tx == 0):
            for i in range(4):
                dev("mbar_init", at(self.fullQ, i // 2, i % 2), 1)
                dev("mbar_init", at(self.emptyQ, i // 2, i % 2), 1)
            for i in range(STAGES):
                for bar, count in ((self.fullK, 1), (self.emptyK, 8), (self.fullV, 1), (self.emptyV, 8)):
                    dev("mbar_init", at(bar, i), count)
            dev("mbar_init", at(self.fullT, 0), 1)
            dev("mbar_init", at(self.emptyT, 0), 8)
            dev("fence_mbar_init")
            dev("fence_proxy_async")
        dev("sync_threads")
        with T.If(wg == 0):
            with T.Then():
                dev("setmaxnreg_dec", regs=24)
                with when(self.tx == 0):
                    self.producer()
            with T.Else():
                dev("setmaxnreg_inc", regs=240)
                _Consumer(self, bind("w", wg - 1)).emit()

    def producer(self) -> None:
        p = self.p
        pol_kv, pol_q = bind("pol_kv", dev("l2_evict_last")), bind("pol_q", dev("l2_evict_first"))
        K, V = Ring("k", self.fullK, self.emptyK, 1), Ring("v", self.fullV, self.emptyV, 1)
        inits = (("q_parity", 1), ("t_parity", 1), ("qbuf", 0), ("tile", self.bx))
        qp, tp, qbuf, tile = (Regs(n, 1, "int32", i) for n, i in inits)
        with T.While(tile.v < p.total):
            nxt = bind("next", p.grid + dev("atomic_add", at(p.sched, 0), 1, dtype="int32"))
            mb, bh = (bind(n, x) for n, x in zip(("mb", "bh"), p.coords(tile.v), strict=True))
            h, b = once("h", mod(bh, p.H)), once("b", div(bh, p.H))
            hk, nb = once("hk", div(h, p.per_kv)), bind("nb", p.blocks(mb))

            def fetch(full, empty, parity, dst, tmap, nbytes, seq, head, policy, b=b) -> None:
                dev("mbar_wait", empty, parity)
                dev("mbar_expect_tx", full, nbytes)
                dev("tma_load_5d", dst, tmap, full, 0, seq, 0, head, b, policy, hint=True)

            def load(ring: Ring, dst: Any, tmap: Any, block: Any, fetch=fetch, hk=hk) -> None:
                full, empty = at(ring.full, ring.s), at(ring.empty, ring.s)
                fetch(full, empty, ring.p, at(dst, ring.s, 0, 0, 0), tmap, TILE_BYTES, block * BN, hk, pol_kv)
                ring.advance()

            for i in range(2):
                full, empty = at(self.fullQ, qbuf.v, i), at(self.emptyQ, qbuf.v, i)
                dst = at(self.Qs, qbuf.v, i, 0, 0, 0)
                fetch(full, empty, qp.v, dst, p.maps["q"], TILE_BYTES // 2, mb * BM + i * 64, h, pol_q)
            qbuf.flip()
            with when(qbuf.v == 0):
                qp.flip()
            with T.serial(0, nb, unroll=False) as i:  # blocks right to left; V trails K by one block
                load(K, self.Ks, p.maps["k"], nb - 1 - i)
                with when(i != 0):
                    load(V, self.Vs, p.maps["v"], nb - i)
            load(V, self.Vs, p.maps["v"], 0)
            dev("mbar_wait", at(self.emptyT, 0), tp.v)
            tp.flip()
            T.buffer_store(self.slot, nxt, [0])
            dev("mbar_arrive", at(self.fullT, 0))
            tile.v = nxt
        dev("threadfence")  # the last block resets the tile counter
        with when(dev("atomic_add", at(p.sched, 1), 1, dtype="int32") == p.grid - 1):
            for i in range(2):
                T.buffer_store(p.sched, 0, [i])
            dev("threadfence")


class _Consumer:
    """One of the two consumer warpgroups; `w` is its number."""

    def __init__(self, block: _Block, w: Any) -> None:
        self.block, self.p, self.w = block, block.p, w
        self.t = bind("t", mod(block.tx, 128))
        self.lane, warp = bind("lane", mod(self.t, 32)), bind("warp", div(self.t, 32))
        self.el = bind("el", self.lane == 0)
        self.dQ = bind("dQ", dev("wgmma_desc", at(block.Qs, 0, w, 0, 0, 0), 16, 1024))
        self.dK = bind("dK", dev("wgmma_desc", at(block.Ks, 0, 0, 0, 0), 16, 1024))
        self.dV = bind("dV", dev("wgmma_desc", at(block.Vs, 0, 0, 0, 0), 16384, 1024))
        self.K = Ring("k", block.fullK, block.emptyK, 0)
        self.V = Ring("v", block.fullV, block.emptyV, 0)
        self.S, self.O, self.P = Regs("S", 64, "float32"), Regs("O", 64, "float32"), Regs("P", 32, "uint32")
        self.m, self.l, self.a, self.s, self.x, self.y, self.t_sum, self.u_sum, self.inv = (
            Regs(n, 2, "float32") for n in ("m", "l", "a", "s", "x", "y", "t_sum", "u_sum", "inv")
        )
        self.lim, self.mb, self.bh = Regs("lim", 2, "int32"), Regs("mb", 1, "int32"), Regs("bh", 1, "int32")
        self.nk, self.nv, self.pend = Regs("nk", 1, "bool"), Regs("nv", 1, "bool"), Regs("pend", 1, "bool", False)
        inits = (("q_parity", 0), ("t_parity", 0), ("qb", 0), ("tile", block.bx))
        self.qp, self.tp, self.qb, self.tile = (Regs(n, 1, "int32", i) for n, i in inits)
        self.row = bind("row", warp * 16 + div(self.lane, 4))
        self.st_row = bind("st_row", warp * 16 + mod(self.lane, 16))

    def qk(self, qb: Any) -> None:
        """S = Q K^T, 8 steps of 16."""
        dq, dk = advance_descriptor(self.dQ, qb * TILE_BYTES), advance_descriptor(self.dK, self.K.s * TILE_BYTES)
        for i in range(8):
            a = advance_descriptor(dq, (i // 4) * 8192 + (i % 4) * 32)
            b = advance_descriptor(dk, (i // 4) * 16384 + (i % 4) * 32)
            dev("wgmma_ss", self.S.buf.data, a, b, n=128, mode="acc" if i else "init")

    def pv(self) -> None:
        """O += P V."""
        dv = advance_descriptor(self.dV, self.V.s * TILE_BYTES)
        for i in range(8):
            b = advance_descriptor(dv, 2048 * i)
            dev("wgmma_rs", self.O.buf.data, at(self.P, 4 * i), b, n=128, tnsp_b=True)

    def issue(self, *gemms: Callable[[], None]) -> None:
        """One fence, then one wgmma group for each gemm."""
        dev("wgmma_fence")
        for gemm in gemms:
            gemm()
            dev("wgmma_commit")

    def wait_s(self, pending: int) -> None:
        dev("wgmma_wait", self.S.buf.data, pending=pending, regs="f64")

    def wait_o(self, pending: int) -> None:
        dev("wgmma_wait", self.O.buf.data, self.P.buf.data, pending=pending, regs="f64 r32")

    def release(self, ring: Ring) -> None:
        with when(self.el):
            dev("mbar_arrive", at(ring.empty, ring.s))
        ring.advance()

    def wait_tested(self, ok: Regs, ring: Ring) -> None:
        with when(tirx.Not(ok.v)):
            dev("mbar_wait", at(ring.full, ring.s), ring.p)

    def mask(self, j: Any, gr: Any) -> None:
        """Keeps column c of block j iff c < limit of the row."""
        S, cq, off = self.S, 2 * mod(self.lane, 4), self.p.SKV - self.p.SQ
        for r in range(2):  # stored, not bound: StmtSimplify would copy it into 64 compares
            limit = tirx.min(self.p.SKV, gr + (8 * r + 1) + off) if self.p.causal else self.p.SKV
            self.lim[r] = limit - j * BN - cq
        with T.serial(0, 16, unroll=True) as i:
            for c in range(4):
                with when(self.lim[c // 2] <= i * 8 + c % 2):
                    S[i * 4 + c] = NEG_INF

    def rowmax(self, x: Regs) -> None:
        """x[r] = scale * max of row r of S: two chains a row, then 2 shuffles."""
        S, y = self.S, self.y
        for r in range(2):
            x[r] = S[2 * r]
            y[r] = S[2 * r + 1]
        with T.serial(1, 16, unroll=True) as i:
            for r in range(2):
                x[r] = tirx.max(x[r], S[i * 4 + 2 * r])
                y[r] = tirx.max(y[r], S[i * 4 + 2 * r + 1])
        for r in range(2):
            x[r] = tirx.max(x[r], y[r])
        for lanes, r in ((1, 0), (1, 1), (2, 0), (2, 1)):
            x[r] = tirx.max(x[r], dev("shfl_xor", x[r], lanes))
        for r in range(2):
            x[r] = x[r] * self.p.scale

    def softmax(self, masked: bool, first: bool = False) -> None:
        """S = exp2(S * scale - m); l (+)= row sums; P = bfloat16(S). The next barriers are tested before the exps."""
        S, t, u, l, m = self.S, self.t_sum, self.u_sum, self.l, self.m
        for r in range(2):  # a fully masked row subtracts 0
            self.s[r] = tirx.Select(m[r] == f32(NEG_INF), f32(0), m[r]) if masked else m[r]
        for ok, ring in ((self.nk, self.K), (self.nv, self.V)):
            ok.v = dev("mbar_test", at(ring.full, ring.s), ring.p)
        with T.serial(0, 16, unroll=True) as i:
            for c in range(4):
                S[i * 4 + c] = dev("ex2", S[i * 4 + c] * self.p.scale - self.s[c // 2])
        for r in range(2):
            t[r] = S[2 * r]
            u[r] = S[2 * r + 1]
        with T.serial(1, 16, unroll=True) as i:
            for r in range(2):
                t[r] = t[r] + S[i * 4 + 2 * r]
                u[r] = u[r] + S[i * 4 + 2 * r + 1]
        for r in range(2):
            l[r] = t[r] + u[r] if first else l[r] + (t[r] + u[r])
        with T.serial(0, 32, unroll=True) as i:
            self.P[i] = dev("pack_bf16x2", S[2 * i], S[2 * i + 1])

    def rescale(self, masked: bool, grew: Any) -> None:
        """m, l, O move to the new maximum only when a row of the warp grew by more than 2^LAZY."""
        m, x, a, l, O = self.m, self.x, self.a, self.l, self.O
        with when(grew):
            for r in range(2):
                n = Regs("n", 1, "float32", tirx.max(m[r], x[r]))
                a[r] = dev("ex2", m[r] - n.v)
                if masked:
                    with when(n.v == f32(NEG_INF)):
                        a[r] = 1.0
                m[r] = n.v
                l[r] = l[r] * a[r]
            with T.serial(0, 16, unroll=True) as i:
                for c in range(4):
                    O[i * 4 + c] = O[i * 4 + c] * a[c // 2]

    def step(self, masked: bool, j: Any = None, gr: Any = None) -> None:
        """One kv block: S = Q K_j^T issued with O += P V_{j+1}."""
        m, x = self.m, self.x
        self.wait_tested(self.nk, self.K)
        self.wait_tested(self.nv, self.V)
        dev("bar_sync", self.w + 1, 256)  # my turn
        self.issue(lambda: self.qk(self.qb.v), self.pv)
        self.wait_s(1)
        self.release(self.K)
        if masked:
            self.mask(j, gr)
        self.rowmax(x)  # hidden behind P V
        grew = bind("grew", dev("vote_any", tirx.Or(m[0] + f32(LAZY) < x[0], m[1] + f32(LAZY) < x[1])))
        dev("bar_arrive_after", 2 - self.w, 256, tirx.Cast("int32", grew))  # the other's turn, and no earlier
        self.wait_o(0)
        self.release(self.V)
        self.rescale(masked, grew)
        self.softmax(masked)

    def reduce_l(self) -> None:
        for lanes, r in ((1, 0), (1, 1), (2, 0), (2, 1)):
            self.l[r] = self.l[r] + dev("shfl_xor", self.l[r], lanes)

    def epilogue(self, gr: Any) -> None:
        """O / l -> bfloat16 -> stmatrix into the tile's own Q buffer -> TMA store; log-sum-exp."""
        w, O, l, inv, bh, st_row, b = self.w, self.O, self.l, self.inv, self.bh.v, self.st_row, self.block
        for r in range(2):
            inv[r] = tirx.Select(l[r] > f32(0), dev("rcp", l[r]), f32(0))
        dev("bar_sync", w + 4, 128)
        for k in range(8):
            packed = Regs("packed", 4, "uint32")
            for i in range(4):
                packed[i] = dev("pack_bf16x2", O[8 * k + 2 * i] * inv[i % 2], O[8 * k + 2 * i + 1] * inv[i % 2])
            chunk = ((k & 3) * 2 + div(self.lane, 16)) ^ mod(st_row, 8)
            dev("stmatrix_x4", at(b.Qs, self.qb.v, w, k >> 2, st_row, chunk * 8), packed.buf.data)
        dev("fence_proxy_async")
        dev("bar_sync", w + 4, 128)
        with when(self.t == 0):
            src, seq = at(b.Qs, self.qb.v, w, 0, 0, 0), self.mb.v * BM + w * 64
            dev("tma_store_5d", self.p.maps["o"], src, 0, seq, 0, mod(bh, self.p.H), div(bh, self.p.H))
            dev("bulk_commit")
        with when(mod(self.lane, 4) == 0):
            for r in range(2):
                value = (self.m[r] + dev("lg2", l[r])) * f32(math.log(2))
                value = tirx.Select(l[r] > f32(0), value, f32(NEG_INF))
                with when(gr + 8 * r < self.p.SQ):
                    T.buffer_store(self.p.lse, value, [bh, gr + 8 * r])

    def prologue(self) -> None:
        """S of the first block of the first tile."""
        with when(self.w == 1):
            dev("bar_arrive", 1, 256)  # warpgroup 0 goes first
        mb, bh = self.p.coords(self.tile.v)
        self.mb.v = mb
        self.bh.v = bh
        dev("mbar_wait", at(self.block.fullQ, 0, self.w), 0)
        dev("mbar_wait", at(self.K.full, self.K.s), self.K.p)
        self.issue(lambda: self.qk(tirx.const(0, "int32")))
        self.wait_s(0)

    def emit(self) -> None:
        self.prologue()
        with T.While(tirx.const(True, "bool")):
            gr = self.tile_body()
            self.boundary(gr)
        with when(self.t == 0):
            dev("bulk_wait")

    def tile_body(self) -> Any:
        """From raw scores of the tile's first kv block to its last softmax; returns the global row."""
        p, b = self.p, self.block
        self.release(self.K)
        nb, gr = bind("nb", p.blocks(self.mb.v)), bind("gr", self.mb.v * BM + self.w * 64 + self.row)
        with contextlib.nullcontext() if p.causal else when(nb * BN > p.SKV):
            self.mask(nb - 1, gr)
        self.rowmax(self.m)
        self.softmax(masked=True, first=True)
        with T.serial(0, 64, unroll=True) as i:
            self.O[i] = 0.0
        with when(tirx.And(self.pend.v, self.t == 0)):  # the O store in the other Q buffer has been read
            dev("bulk_wait_read")
            dev("mbar_arrive", at(b.emptyQ, self.qb.v ^ 1, self.w))
        self.pend.v = True
        full_blocks = nb - 1
        if p.causal:  # peeled: only diagonal blocks need the mask
            jfull = bind("jfull", tirx.max(div(self.mb.v * BM + (p.SKV - p.SQ) + 1, BN), 0))
            with T.serial(0, nb - 1 - jfull, unroll=False) as i:
                self.step(True, nb - 2 - i, gr)
            full_blocks = tirx.min(nb - 1, jfull)
        with T.serial(0, full_blocks, unroll=False):
            self.step(False)
        return gr

    def boundary(self, gr: Any) -> None:
        """Last P V of this tile together with the first Q K of the next one."""
        p, b = self.p, self.block
        dev("mbar_wait", at(b.fullT, 0), self.tp.v)
        self.tp.flip()
        raw = bind("raw", b.slot[0])
        dev("syncwarp")
        with when(self.el):
            dev("mbar_arrive", at(b.emptyT, 0))
        nxt = bind("next", dev("uniform", raw))
        self.wait_tested(self.nv, self.V)
        with when(nxt >= p.total):  # tail duplicated: no control-flow join with wgmma in flight
            self.issue(self.pv)
            self.reduce_l()
            self.wait_o(0)
            self.epilogue(gr)
            T.Break()
        qn = bind("qn", self.qb.v ^ 1)
        with when(qn == 0):
            self.qp.flip()
        dev("mbar_wait", at(b.fullQ, qn, self.w), self.qp.v)
        self.wait_tested(self.nk, self.K)
        dev("bar_sync", self.w + 1, 256)
        self.issue(self.pv, lambda: self.qk(qn))
        dev("bar_arrive", 2 - self.w, 256)
        self.reduce_l()
        self.wait_o(1)
        self.release(self.V)
        self.epilogue(gr)
        self.tile.v = nxt
        self.qb.v = self.qb.v ^ 1
        mb, bh = p.coords(self.tile.v)
        self.mb.v = mb
        self.bh.v = bh
        self.wait_s(0)
