# SPDX-License-Identifier: Apache-2.0
"""The least time of tiled loops on a CUDA device, from its data sheet and two measured numbers.

A block's step takes as long as the slower of its arithmetic at the peak rate of an SM and its loads from L2, but a
stage of the ring is free again only after the latency of its load and its use. SMs take blocks in turns; all of it is
no faster than DRAM.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.layout.dtypes import bits_of
from tilelang.target.arch import Arch

__all__ = ["Loop", "peak_flops", "seconds", "shared_stages"]

_LATENCY = 700e-9  # seconds from the start of a load of a tile to its use, H200
_BARRIER = 10e-9  # seconds that a step's barriers take
# A tile of 16-bit operands keeps tensor cores busy from this harmonic size on, rows * columns / (rows + columns):
# measured on an H200 (the shares of speed in tilelang/autotuner/gemm_tiles.py are min(1, size / 72)).
_BALANCE = 72
_MOST_RESIDENT = 4
_SLACK_BYTES = 2048  # barriers and alignment


@dataclass(frozen=True)
class Loop:
    """What all blocks of a launch do alike."""

    blocks: int
    steps: int  # of one block
    step_flops: float  # of one block and step, at 16-bit rate
    step_bytes: float  # loaded by one block and step
    out_bytes: float  # stored by one block
    dram_bytes: float  # of the whole launch, each tensor once
    threads: int
    registers: int  # a thread
    shared_bytes: int
    stages: int = 1


def peak_flops(dtype: str, arch: Arch) -> float:
    """Operations a second of all tensor cores: 16-bit numbers set the rate."""
    bits = bits_of(dtype)
    share = {64: 1 / 16, 32: 1 / 2}.get(bits, 1.0)
    narrow = bits <= 8 and ("int" in dtype or arch.fp8)
    return arch.tensor_tflops * 1e12 * (2.0 if narrow else share)


def seconds(loop: Loop, arch: Arch) -> float:
    """The least time of the launch; infinite where a block fits no SM."""
    resident = _resident(loop, arch)
    if not resident:
        return float("inf")
    rate = arch.tensor_tflops * 1e12 / arch.num_sms
    turns = -(-loop.blocks // arch.num_sms)  # blocks that one SM runs
    together = min(resident, turns)
    load_rate = rate / _BALANCE  # 2 flops each of size * bytes: bytes a second from L2
    load = loop.step_bytes / load_rate
    work = max(loop.step_flops / rate, load) + _BARRIER / together
    step = max(work, (_LATENCY + work) / (loop.stages * together))
    ends = (_LATENCY + load + loop.out_bytes / (arch.dram_gbps * 1e9 / arch.num_sms)) / together
    return max(turns * (loop.steps * step + ends), loop.dram_bytes / (arch.dram_gbps * 1e9))


def shared_stages(stage_bytes: int, other_bytes: int, steps: int, most: int, arch: Arch) -> int:
    """Stages of a ring that fit a block beside `other_bytes`; 0 where not one does."""
    room = arch.smem_bytes_per_block - other_bytes - _SLACK_BYTES
    return max(0, min(room // stage_bytes, most, max(steps, 1)))


def _resident(loop: Loop, arch: Arch) -> int:
    """Blocks on an SM at once."""
    if loop.shared_bytes + _SLACK_BYTES > arch.smem_bytes_per_block or loop.registers > arch.max_regs_per_thread:
        return 0
    per_block = loop.shared_bytes + _SLACK_BYTES + arch.smem_bytes_reserved
    return min(
        _MOST_RESIDENT,
        arch.smem_bytes_per_sm // per_block,
        arch.max_threads_per_sm // loop.threads,
        arch.regs_per_sm // (loop.threads * max(loop.registers, 32)),
    )
