# SPDX-License-Identifier: Apache-2.0
"""GPU architectures as data, and target strings.

Numbers of one SM: CUDA C++ Programming Guide 13.0, tables "Feature Support" and "Technical Specifications per Compute
Capability". `num_sms` is that of the part named in `part`; a kernel that depends on it asks the device at launch.
Importing this probes no device and imports neither TVM nor torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tilelang.target.operands import WARPGROUP

__all__ = ["ARCHS", "DEFAULT_CUDA", "MAX_BLOCK", "MAX_CLUSTER", "MAX_GRID", "Arch", "Target", "arch_of", "parse_target"]

# The same on every architecture: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability".
MAX_GRID = (2**31 - 1, 65535, 65535)  # blocks along x, y, z
MAX_BLOCK = (1024, 1024, 64)  # threads along x, y, z; Arch.max_threads bounds their product
MAX_CLUSTER = (
    16  # blocks, not portable beyond Arch.max_cluster_blocks (CUDA C++ Programming Guide, "Thread Block Clusters")
)


@dataclass(frozen=True)
class Arch:
    """What the compiler must know of a GPU. Sizes in bytes, counts per SM unless named otherwise."""

    name: str  # "sm_90a"
    sm: int  # 90
    part: str
    num_sms: int
    wgmma: bool = False
    tma: bool = False
    cluster: bool = False
    mbarrier_try_wait: bool = False
    setmaxnreg: bool = False
    stmatrix: bool = False
    fp8: bool = False  # fp8 conversions and mma
    cp_async: bool = True
    ldmatrix: bool = True
    max_threads: int = 1024  # per block
    warp_size: int = 32
    smem_bytes_per_block: int = 0  # opt-in maximum of dynamic shared memory
    smem_bytes_per_sm: int = 0
    smem_bytes_reserved: int = 1024  # of the system, per block (CUDA 12 and later)
    regs_per_sm: int = 65536
    max_regs_per_thread: int = 255
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    named_barriers: int = 16  # PTX ISA 9.7.13.1, bar
    mbarrier_bytes: int = 8
    max_cluster_blocks: int = 1  # portable cluster size
    l2_bytes: int = 0
    dram_gbps: float = 0.0  # data sheet
    tensor_tflops: float = 0.0  # dense bf16, data sheet

    def registers_at_launch(self, threads: int) -> int:
        """Registers of each thread of a block that has an SM for itself, when it starts: an equal share in steps of 8,
        by whole warpgroups. setmaxnreg hands on what the block got then, and no more (PTX ISA, "setmaxnreg": the
        per-CTA maximum register pool): 640 threads start with 61440 of the SM's 65536."""
        return self.regs_per_sm // (-(-threads // WARPGROUP) * WARPGROUP) // 8 * 8

    def has(self, needs: str) -> bool:
        """May code that needs architecture `needs` (as in the device-op table) run here."""
        wanted = re.fullmatch(r"sm_(\d+)(a?)", needs)
        if wanted is None:
            raise ValueError(f"not an architecture: {needs!r}")
        return self.name == needs if wanted[2] else self.sm >= int(wanted[1])


_KB = 1024
_SM80 = Arch(
    "sm_80",
    80,
    "A100",
    108,
    smem_bytes_per_block=163 * _KB,
    smem_bytes_per_sm=164 * _KB,
    l2_bytes=40 << 20,
    dram_gbps=2039.0,
    tensor_tflops=312.0,
)
_SM86 = Arch(
    "sm_86",
    86,
    "A10",
    72,
    smem_bytes_per_block=99 * _KB,
    smem_bytes_per_sm=100 * _KB,
    max_threads_per_sm=1536,
    max_blocks_per_sm=16,
    l2_bytes=6 << 20,
    dram_gbps=600.0,
    tensor_tflops=125.0,
)
_SM89 = Arch(
    "sm_89",
    89,
    "L40S",
    142,
    fp8=True,
    smem_bytes_per_block=99 * _KB,
    smem_bytes_per_sm=100 * _KB,
    max_threads_per_sm=1536,
    max_blocks_per_sm=24,
    l2_bytes=96 << 20,
    dram_gbps=864.0,
    tensor_tflops=362.0,
)
_SM90 = Arch(
    "sm_90",
    90,
    "H100 / H200 SXM",
    132,
    tma=True,
    cluster=True,
    mbarrier_try_wait=True,
    stmatrix=True,
    fp8=True,
    smem_bytes_per_block=227 * _KB,
    smem_bytes_per_sm=228 * _KB,
    max_cluster_blocks=8,
    l2_bytes=50 << 20,
    dram_gbps=4800.0,
    tensor_tflops=989.0,
)
_SM90A = replace(_SM90, name="sm_90a", wgmma=True, setmaxnreg=True)

ARCHS: dict[str, Arch] = {a.name: a for a in (_SM80, _SM86, _SM89, _SM90, _SM90A)}

DEFAULT_CUDA = "sm_90a"  # what `target="cuda"` means where no device says otherwise


@dataclass(frozen=True)
class Target:
    """Where code runs: `kind` is cuda, cpu or sim; cuda and sim have an architecture."""

    kind: str
    arch: Arch | None = None

    def __str__(self) -> str:
        return f"{self.kind}:{self.arch.name}" if self.arch else self.kind


def arch_of(target: str | Target | Arch) -> Arch:
    """The architecture of "cuda:sm_90a", "sm_90a", "cuda", a Target or an Arch. Raises ValueError if there is none."""
    if isinstance(target, Arch):
        return target
    if isinstance(target, Target):
        if target.arch is None:
            raise ValueError(f"target {target} has no GPU architecture")
        return target.arch
    if target in ARCHS:
        return ARCHS[target]
    return arch_of(parse_target(target))


_ALIASES = {"llvm": "cpu", "c": "cpu", "cpu": "cpu", "cuda": "cuda", "sim": "sim"}


def parse_target(target: str | Target | None, default: str = "cuda") -> Target:
    """A Target from what the user wrote: None (the caller's `default`), "cuda", "cuda:sm_90a", "cuda -arch=sm_80",
    "cpu", "llvm", "sim".

    Raises ValueError, naming the known ones. Whether None means cuda or cpu here is decided by the caller, who may
    look at devices.
    """
    if isinstance(target, Target):
        return target
    text = (default if target is None else target).strip()
    match = re.fullmatch(r"(\w+)(?:\s*:\s*|\s+-arch=|\s+--arch=)?(sm_\w+)?", text)
    kind = _ALIASES.get(match[1]) if match else None
    if match is None or kind is None:
        raise ValueError(
            f"unknown target {text!r}; known: cuda, cuda:<arch>, cpu, sim, sim:<arch>, with arch of {', '.join(ARCHS)}"
        )
    if kind == "cpu":
        if match[2]:
            raise ValueError(f"target {text!r}: a cpu target has no GPU architecture")
        return Target("cpu")
    name = match[2] or DEFAULT_CUDA
    if name not in ARCHS:
        raise ValueError(f"unknown architecture {name!r}; known: {', '.join(ARCHS)}")
    return Target(kind, ARCHS[name])
