# SPDX-License-Identifier: Apache-2.0
"""Attribute keys, storage scopes and op prefixes of the IR: every `"tl.…"` string is written here once."""

from __future__ import annotations

__all__ = [
    "ARRIVE_COUNTS",
    "ASYNC_COPY",
    "BARRIER_SCOPE",
    "CLUSTER_DIMS",
    "COALESCED_WIDTH",
    "COMPILE_FLAGS",
    "DEVICE_OP_PREFIX",
    "EXTENT",
    "FRAGMENT",
    "GLOBAL",
    "HAND_WRITTEN",
    "LAUNCH_FACTS",
    "LAYOUT",
    "LOCAL",
    "LOOP_ID",
    "LOOP_LAYOUT",
    "MIN_BLOCKS",
    "NOTES",
    "NUM_OUTPUTS",
    "NUM_STAGES",
    "NUM_WORKSPACES",
    "OFFSET",
    "PARALLEL",
    "PASS_CONFIGS",
    "PIPELINE_ORDER",
    "PIPELINE_STAGE",
    "POINTERS",
    "PRELUDE",
    "REGISTERS",
    "REGISTER_SCOPES",
    "RING",
    "ROLE",
    "SHARED",
    "SHARED_DYN",
    "SHARED_SCOPES",
    "TILES",
    "TILE_OP_PREFIX",
    "TILE_STAGES",
    "UNROLL",
    "VAR",
]

# Op name prefixes.
TILE_OP_PREFIX = "tl.tile."  # tile ops, levels 1 to 3
DEVICE_OP_PREFIX = "tl.dev."  # device ops, level 4

# Storage scopes.
GLOBAL = "global"
SHARED_DYN = "shared.dyn"
SHARED = "shared"
FRAGMENT = "local.fragment"  # block-level register tile, distributed over threads by its layout
LOCAL = "local"  # per-thread array
VAR = "local.var"  # per-thread scalar, one element
BARRIER_SCOPE = "shared.barrier"  # uint64 mbarriers
SHARED_SCOPES = frozenset({SHARED, SHARED_DYN})
REGISTER_SCOPES = frozenset({LOCAL, VAR, FRAGMENT})

# For annotations.
IN_FLIGHT = "tl.in_flight"  # on a loop whose gemms may stay in flight over its back edge
PARALLEL = "tl.parallel"  # on the outermost loop of a T.Parallel nest: int, number of loops in the nest
TILE_STAGES = "tl.tile_stages"  # on a loop over tiles: int, slots of what its body loads once
NUM_STAGES = "tl.num_stages"  # on a T.Pipelined loop: int >= 0
PIPELINE_ORDER = "tl.pipeline_order"  # list[int], manual schedule
PIPELINE_STAGE = "tl.pipeline_stage"  # list[int], manual schedule
ASYNC_COPY = "tl.async_copy"  # on a T.Parallel nest of cp.async copies to shared: 1, or 2 if the program waits
COALESCED_WIDTH = "tl.coalesced_width"  # int, vector width asked for on a T.Parallel nest or copy
LOOP_LAYOUT = "tl.loop_layout"  # str, layout text pinned by the user (loop_layout=)
UNROLL = "tl.unroll"  # int factor on a T.unroll loop (0 = full)

ARRIVE_COUNTS = "tl.arrive_counts"  # list[int], on AllocBuffer of a program's own mbarriers: arrivals of a phase

# Facts written by passes.
HAND_WRITTEN = "tl.hand_written"  # on a T.Parallel nest of the program's own, where an option asks which are
LOOP_ID = "tl.loop_id"  # int, on the outermost loop of a T.Parallel nest
LAYOUT = "tl.layout"  # str, layout text: on AllocBuffer and on T.Parallel nests
NOTES = "tl.notes"  # function attribute: list[str], performance notes of the passes so far
OFFSET = "tl.offset"  # on AllocBuffer: int, byte offset in the shared arena
RING = "tl.ring"  # on AllocBuffer: mbarriers or commit groups order all accesses, no block barriers needed
ROLE = "tl.role"  # AttrStmt key around the code of one role; value: "producer" | "consumer"

# AttrStmt keys inside the launch.
EXTENT = "tl.extent"  # node: a Var, value: an expression; inside, 0 <= node < value
REGISTERS = "tl.registers"  # str: budgets asked for, "producer=24,consumer=240", or "change=0" for none
MIN_BLOCKS = "tirx.launch_bounds_min_blocks_per_sm"
CLUSTER_DIMS = "tl.cluster_dims"
LAUNCH_FACTS = frozenset({REGISTERS, MIN_BLOCKS, CLUSTER_DIMS})  # right inside the thread extents: how it is launched

# Function attributes.
COMPILE_FLAGS = "tl.compile_flags"  # list[str], flags of the user's for the CUDA compiler
NUM_OUTPUTS = "tl.num_outputs"  # int, how many of the last parameters are T.empty tensors that are returned
NUM_WORKSPACES = "tl.num_workspaces"  # int, how many parameters at the very end are T.alloc_global tensors
POINTERS = "tl.pointers"  # list[str], names of int64 parameters that are addresses (T.ptr)
PASS_CONFIGS = "tl.pass_configs"  # str, JSON object of pass configs
TILE_QUEUE = "tl.tile_queue"  # int: the last parameter, uint32[2], is the launcher's, for this launch alone. [0] counts
# tiles that blocks have asked for (see make_persistent), 0 between launches; [1] is the state of grid barriers. The
# value is the count from which on no block gets another tile, where it is known
TILES = "tl.tiles"  # str, JSON object: where the elements of each shared tile lie, for reports (see plan_arena)
PRELUDE = "tl.prelude"  # str, CUDA text of the user's, in front of the kernels
