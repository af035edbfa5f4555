# SPDX-License-Identifier: Apache-2.0
"""What a user may choose about one compilation. Public `pass_configs` keys are mapped to these fields in
`jit/pass_config.py`.

`None` means the compiler decides. The whole object is part of the kernel cache's key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.support.env import env

__all__ = ["CompileOptions"]


@dataclass(frozen=True)
class CompileOptions:
    """Choices for passes, code generation and the toolchain."""

    fast_math: bool = False  # approximate math functions and flush-to-zero
    warp_specialize: bool | None = None  # producer and consumer warps
    tma: bool = True  # may copies use the tensor memory accelerator
    wgmma: bool = True
    sync_threads: bool = True  # barriers between accesses to shared elements that the program writes out itself
    raster_panel: int | None = None  # rows of blocks in a panel of matrix products; 0 = none
    long_blocks_first: bool = True  # blocks with more work start first
    warpgroup_turns: bool | None = None  # warpgroups issue their gemms in turns
    relaxed_division: bool = True  # quotients that are rounded to 16 bits may be off by 2 ulp of float32
    deferred_sums: bool = True  # lanes add up their parts of a row sum once, after the loop
    # powers of two by which a maximum grows before accumulators are rescaled; 0 = always, None = where it pays unseen
    lazy_rescale: float | None = None
    l2_hints: bool = True  # loads that other blocks repeat stay in L2, others leave first
    pinned_waits: bool = False  # early waits keep their place in machine code, where warpgroups take no turns
    early_waits: bool = True  # gemms retire before the exponentials of a tile, not behind them
    ask_ahead: bool = True  # loops ask for their next tiles before the exponentials of a tile
    carry_gemms: bool = False  # gemms stay in flight over the back edge of loops (0 to -1.6 %, H200, 2026-11)
    warpgroup_stores: bool | None = None  # every warpgroup stores its own rows
    cluster: int | None = None  # blocks that share loads of persistent products: 1 or 2
    persistent: bool | None = None  # one block an SM that walks over tiles
    overlap_launches: bool = True  # a kernel starts while the one in front of it ends
    early_bytes: int | None = None  # that a block asks L2 for before it waits for that one; 0 = none
    compute_ahead: bool = False  # register operands that threads compute are ready an iteration ahead
    tile_queue: bool = True  # may a function get a counter of tiles as a last parameter, which its launcher supplies?
    reuse_shared: bool = True  # buffers with disjoint lives share space
    safe_memory_access: bool = True  # guards of accesses to tensors that the program writes out itself
    vectorize: bool = True  # may a thread access neighbours at once
    cp_async: bool = True
    register_level: int | None = None  # ptxas --register-usage-level, 0 to 10
    ptxas_verbose: bool = False
    line_directives: bool = False
    layout_plot: bool = False  # show inferred layouts
    layout_plot_formats: str = ""  # "txt" and formats of pictures, separated by commas
    print_program: bool = False  # the tile program
    pass_times: bool = field(default_factory=env.pass_times.get)  # how long passes take
    pass_times_from_ms: float = 0.0
    kernels_dir: str = ""  # where the CUDA text of kernels is written
    dump_ir: bool = False
    dump_ir_dir: str = ""
    watchdog: bool = field(default_factory=env.watchdog.get)  # waits are bounded and say where they hang
    device_flags: tuple[str, ...] = ()
