# SPDX-License-Identifier: Apache-2.0
"""Rows on barriers: mbarriers, named barriers, fences, clusters, programmatic launch, register budgets."""

from __future__ import annotations

import json

from tilelang.ir.device.effects import Access, Arrive, Convergence, Effect, Fence, GridDependency, Mode, Sync, Wait
from tilelang.ir.device.row import DeviceOpRow, Form, Operand, Static, asm, gmem, smem, value

__all__ = ["ROWS"]

_WARP, _WARPGROUP = Convergence.WARP, Convergence.WARPGROUP
_BAR = smem("bar")
_PARITY = value("parity")
_NAMED = (value("id"), value("threads"))

# Not .release.cluster: ptxas then emits MEMBAR.ALL.GPU and ERRBAR before every arrive (measured: up to 2x slower GEMM).
_REMOTE = "{ .reg .b32 ra; mapa.shared::cluster.u32 ra, $bar, $cta; mbarrier.arrive.shared::cluster.b64 _, [ra]; }"
# Data order: later waits stay behind the arrive, and the arrive behind `value`; plain bar.arrive moves freely in ptxas.
_ARRIVE_AFTER = "{ .reg .pred p; setp.ne.b32 p, $value, 0; @p bar.arrive $id, $threads; @!p bar.arrive $id, $threads; }"
_TRY_WAIT = (
    "{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$bar], $parity; @p bra DONE; bra WAIT; DONE: }"
)
_SPIN = (
    "{ .reg .pred p; WAIT: mbarrier.test_wait.parity.shared::cta.b64 p, [$bar], $parity; @p bra DONE; bra WAIT; DONE: }"
)


_WATCHDOG_NS = 2_000_000_000  # a wait that takes longer counts as a hang
_WATCHDOG_LINGER_MS = 200  # before the trap, so that the other waits can say what they wait for


def _watched_wait(number: int, spin: bool, name: str, role: str, first: int, place: str) -> Form:
    """A wait that gives up: `name`, `role` and `place` go into its message, `number` keeps helpers apart. Roles that
    are numbered by warpgroup start at warpgroup `first`, -1 when they are not."""
    wait = "test_wait" if spin else "try_wait"
    done = (
        asm(
            f"{{ .reg .pred p; mbarrier.{wait}.parity.shared::cta.b64 p, [$bar], $parity; "
            "selp.u32 $result, 1, 0, p; }",
            (_BAR, _PARITY),
            "int32",
        )
        .replace("int y; ", "")
        .replace(" return y;", "")
    )
    name, role, place = (text.replace("%", "%%") for text in (name, role, place))
    warp = "(int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32"
    group = f", {warp} / 4 - {first}" if first >= 0 else ""
    where = "block (%d, %d, %d), warp %d" + (f" ({role}{' %d' if group else ''})" if role else "")
    line = f"tilelang watchdog: {where} waits for the phase of parity %d of {name}[%d] at {place}"
    text = json.dumps(line + "\n")
    body = (
        "unsigned long long start, now; unsigned lane; int y; "
        'asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start)); '
        f"while (true) {{ {done} if (y) return; "
        'asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); '
        f"if (now - start < {_WATCHDOG_NS}ull) continue; "
        'asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane)); '
        f"if (lane == __ffs(__activemask()) - 1) printf({text}, (int)blockIdx.x, (int)blockIdx.y, (int)blockIdx.z, "
        f"{warp}{group}, parity, index); "
        f"for (int i = 0; i < {_WATCHDOG_LINGER_MS}; ++i) __nanosleep(1000000); __threadfence_system(); __trap(); }}"
    )
    return Form((_BAR, _PARITY, value("index")), body, effects=(Wait("bar", "parity"),))


def _op(text: str, *operands: Operand, effects: tuple[Effect, ...] = (), result: str = "") -> Form:
    return Form(tuple(operands), asm(text, operands, result), result or "void", effects)


# Bits of the types that are stored, and how assembly takes them.
_STORED = {
    **dict.fromkeys(("int8", "uint8", "bool"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64"), 64),
}
_CARRIED = {
    8: ("unsigned char", "h"),
    16: ("unsigned short", "h"),
    32: ("unsigned", "r"),
    64: ("unsigned long long", "l"),
}


def _store_remote(dtype: str) -> Form:
    bits = _STORED[dtype]
    kind, constraint = _CARRIED[bits]
    wide = f"(unsigned short)*({kind}*)&x" if bits == 8 else f"*({kind}*)&x"
    body = (
        'unsigned there; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(p), "r"(cta)); '
        f'asm volatile("st.shared::cluster.b{bits} [%0], %1;" : : "r"(there), "{constraint}"({wide}) : "memory");'
    )
    return Form((smem("p"), value("cta"), value("x", dtype)), body, effects=(Access("p", Mode.WRITE, bits // 8),))


def _grid_sync(supplied: bool) -> Form:
    """All blocks add up to 2^31, whichever comes last: the top bit of the state turns when all are there."""
    if not supplied:
        return Form((), "__trap();", effects=(Sync("grid"),))
    body = (
        "__syncthreads(); "
        "if (threadIdx.x + threadIdx.y + threadIdx.z == 0) { "
        "unsigned* word = (unsigned*)state; unsigned before, now, part = 1; "
        "if (blockIdx.x + blockIdx.y + blockIdx.z == 0) "
        "part = 0x80000000u - (gridDim.x * gridDim.y * gridDim.z - 1); "
        "__threadfence(); before = atomicAdd(word, part); "
        'do { asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory"); } '
        "while (((before ^ now) >> 31) == 0); __threadfence(); } "
        "__syncthreads();"
    )
    return Form((gmem("state", "uint32"),), body, effects=(Sync("grid"),))


def _test(text: str) -> Form:
    form = _op(
        f"{{ .reg .pred p; {text} p, [$bar], $parity; selp.u32 $result, 1, 0, p; }}", _BAR, _PARITY, result="int32"
    )
    return Form(
        form.operands, form.body.replace("return y", "return y != 0"), "bool", (Wait("bar", "parity", blocking=False),)
    )


def _setmaxnreg(direction: str):
    def build(regs: int) -> Form:
        if not 24 <= regs <= 256 or regs % 8:  # PTX ISA 9.7.19.5
            raise ValueError(f"setmaxnreg takes 24 to 256 registers in steps of 8, got {regs}")
        return Form((), asm(f"setmaxnreg.{direction}.sync.aligned.u32 {regs};", (), memory=False))

    return build


def _cluster_arrive(relaxed: bool) -> Form:
    text = f"barrier.cluster.arrive.{'relaxed' if relaxed else 'release'}.aligned;"
    return Form((), asm(text, ()), effects=(Sync("cluster", waits=False),))


_REGS = (Static("regs", int),)

ROWS = (
    # mbarriers
    DeviceOpRow(
        "mbar_init",
        _op(
            "mbarrier.init.shared::cta.b64 [$bar], $count;",
            _BAR,
            value("count"),
            effects=(Arrive("bar", "count", init=True),),
        ),
        doc="create the mbarrier; publish it with fence_mbar_init and a block or cluster barrier",
    ),
    DeviceOpRow(
        "mbar_inval",
        _op("mbarrier.inval.shared::cta.b64 [$bar];", _BAR),
        doc="the bytes of the mbarrier may be used for something else",
    ),
    DeviceOpRow(
        "mbar_expect_tx",
        _op(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$bar], $bytes;",
            _BAR,
            value("bytes"),
            effects=(Arrive("bar", tx="bytes"),),
        ),
        needs="sm_90",
        doc="expect `bytes` more bytes in this phase, and arrive (release.cta)",
    ),
    DeviceOpRow(
        "mbar_expect_only",
        _op(
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$bar], $bytes;",
            _BAR,
            value("bytes"),
            effects=(Arrive("bar", 0, tx="bytes"),),
        ),
        needs="sm_90",
        doc="expect `bytes` more bytes in this phase, no arrival",
    ),
    DeviceOpRow(
        "mbar_arrive",
        _op("mbarrier.arrive.shared::cta.b64 _, [$bar];", _BAR, effects=(Arrive("bar"),)),
        doc="one arrival (release.cta)",
    ),
    DeviceOpRow(
        "mbar_arrive_remote",
        _op(_REMOTE, _BAR, value("cta"), effects=(Arrive("bar", cta="cta"),)),
        needs="sm_90",
        doc="one arrival on the barrier at the same offset of block `cta` of the cluster",
    ),
    DeviceOpRow(
        "mbar_wait",
        lambda: _op(_TRY_WAIT, _BAR, _PARITY, effects=(Wait("bar", "parity"),)),
        needs="sm_90",
        doc="wait until the phase with that parity has completed (acquire.cta); a fresh barrier passes parity 1",
    ),
    DeviceOpRow(
        "mbar_spin",
        lambda: _op(_SPIN, _BAR, _PARITY, effects=(Wait("bar", "parity"),)),
        doc="mbar_wait for sm_80",
    ),
    DeviceOpRow(
        "mbar_watch",
        _watched_wait,
        (
            Static("number", int, 0),
            Static("spin", bool, False),
            Static("name", str, "barrier"),
            Static("role", str, ""),
            Static("first", int, -1),
            Static("place", str, ""),
        ),
        needs="sm_90",
        doc="mbar_wait that after two seconds prints barrier `index` of `name`, the role and the place, and traps",
    ),
    DeviceOpRow(
        "mbar_test",
        lambda: _test("mbarrier.test_wait.parity.shared::cta.b64"),
        doc="has the phase with that parity completed (acquire.cta when true)",
    ),
    DeviceOpRow(
        "mbar_try",
        lambda: _test("mbarrier.try_wait.parity.shared::cta.b64"),
        needs="sm_90",
        doc="mbar_test that may sleep a little first",
    ),
    DeviceOpRow(
        "map_shared",
        _op("mapa.shared::cluster.u32 $result, $addr, $cta;", smem("addr"), value("cta"), result="int32"),
        needs="sm_90",
        doc="shared::cluster address of the same place in block `cta`",
    ),
    DeviceOpRow(
        "store_remote",
        _store_remote,
        (Static("dtype", str, "float32", tuple(_STORED)),),
        needs="sm_90",
        doc="x into the same place of shared memory in block `cta` of the cluster; its threads see it behind a barrier "
        "of the cluster",
    ),
    # named barriers
    DeviceOpRow(
        "bar_sync",
        _op("bar.sync $id, $threads;", *_NAMED, effects=(Sync("named", "id", "threads"),)),
        converges=_WARP,
        doc="barrier `id` of `threads` threads, orders their memory; ids 1 to 15 (0 is the block's)",
    ),
    DeviceOpRow(
        "bar_arrive",
        _op("bar.arrive $id, $threads;", *_NAMED, effects=(Sync("named", "id", "threads", waits=False),)),
        converges=_WARP,
        doc="arrive on barrier `id`, do not wait; ptxas moves it freely over arithmetic",
    ),
    DeviceOpRow(
        "bar_arrive_after",
        _op(_ARRIVE_AFTER, *_NAMED, value("value"), effects=(Sync("named", "id", "threads", waits=False),)),
        converges=_WARP,
        doc="bar_arrive once the warp-uniform `value` is known; later waits stay behind it",
    ),
    # fences
    DeviceOpRow(
        "fence_proxy_async",
        Form((), asm("fence.proxy.async.shared::cta;", ()), effects=(Fence("proxy_async"),)),
        needs="sm_90",
        doc="own generic writes to shared memory before it are visible to TMA and wgmma after it",
    ),
    DeviceOpRow(
        "fence_mbar_init",
        Form((), asm("fence.mbarrier_init.release.cluster;", ()), effects=(Fence("mbarrier_init"),)),
        needs="sm_90",
        doc="own mbar_init before it are visible to the cluster after the next barrier",
    ),
    DeviceOpRow(
        "threadfence_block", Form((), "__threadfence_block();", effects=(Fence("block"),)), doc="fence, block scope"
    ),
    DeviceOpRow("threadfence", Form((), "__threadfence();", effects=(Fence("gpu"),)), doc="fence, device scope"),
    DeviceOpRow(
        "threadfence_system", Form((), "__threadfence_system();", effects=(Fence("system"),)), doc="fence, system scope"
    ),
    # clusters and launches
    DeviceOpRow(
        "cluster_arrive",
        _cluster_arrive,
        (Static("relaxed", bool, False),),
        converges=_WARP,
        needs="sm_90",
        doc="arrive on the cluster barrier; relaxed orders no memory",
    ),
    DeviceOpRow(
        "cluster_wait",
        Form((), asm("barrier.cluster.wait.acquire.aligned;", ()), effects=(Sync("cluster", arrives=False),)),
        converges=_WARP,
        needs="sm_90",
        doc="wait on the cluster barrier",
    ),
    DeviceOpRow(
        "griddep_wait",
        Form((), asm("griddepcontrol.wait;", ()), effects=(GridDependency(True),)),
        needs="sm_90",
        doc="wait for the grids this one depends on, and see their memory",
    ),
    DeviceOpRow(
        "griddep_launch",
        Form((), asm("griddepcontrol.launch_dependents;", ()), effects=(GridDependency(False),)),
        needs="sm_90",
        doc="dependent grids may start",
    ),
    DeviceOpRow(
        "grid_sync",
        _grid_sync,
        (Static("supplied", bool, False),),
        converges=Convergence.BLOCK,
        doc="barrier of all blocks, orders their memory; the kernel is launched cooperatively. The state, a word whose "
        "low 31 bits are 0 between barriers, comes from supply_grid_state",
    ),
    # register budgets
    DeviceOpRow(
        "setmaxnreg_inc",
        _setmaxnreg("inc"),
        _REGS,
        _WARPGROUP,
        "sm_90a",
        doc="raise the register budget of the warpgroup; waits until they are free",
    ),
    DeviceOpRow(
        "setmaxnreg_dec",
        _setmaxnreg("dec"),
        _REGS,
        _WARPGROUP,
        "sm_90a",
        doc="lower the register budget of the warpgroup",
    ),
)
