# SPDX-License-Identifier: Apache-2.0
"""Device models that templates take: `CUDA("cuda")`. Those of devices that kernels do not run on are refused."""

from __future__ import annotations

from typing import Any

from tilelang.jit.target import cuda_arch
from tilelang.language.errors import NotSupported
from tilelang.target.arch import Arch, arch_of

__all__ = [
    "CDNA",
    "CPU",
    "CUDA",
    "METAL",
    "RDNA",
    "TileDevice",
    "auto_infer_current_arch",
    "is_ada_arch",
    "is_ampere_arch",
    "is_cdna_arch",
    "is_cpu_arch",
    "is_cuda_arch",
    "is_hopper_arch",
    "is_volta_arch",
]


class TileDevice:
    """What templates must know of a device."""

    arch: Arch

    def __init__(self, target: Any = None) -> None:
        name = type(self).__name__
        raise NotSupported(what=f"the device model {name}", instead='templates know CUDA("cuda") and CUDA("sm_90a")')


class CUDA(TileDevice):
    """A CUDA device: "cuda" is the present one (or the one compiled for where there is none), "sm_90a" a named one."""

    platform = "CUDA"

    def __init__(self, target: Any = "cuda") -> None:
        self.target = target
        self.arch = cuda_arch() if target is None or str(target) in ("cuda", "auto") else arch_of(target)
        self.sm_version = self.arch.sm
        self.compute_max_core = self.arch.num_sms
        self.warp_size = self.arch.warp_size
        self.smem_cap = self.arch.smem_bytes_per_block  # bytes
        self.max_smem_usage = self.arch.smem_bytes_per_sm  # bytes
        self.reg_cap = self.arch.regs_per_sm
        self.bandwidth = self.arch.dram_gbps  # 10^9 bytes a second


class CDNA(TileDevice):
    """Refused: no code is made for it."""


class RDNA(TileDevice):
    """Refused: no code is made for it."""


class CPU(TileDevice):
    """Refused: programs run on the CPU, but its loops have no tile sizes to suggest."""


class METAL(TileDevice):
    """Refused: no code is made for it."""


def auto_infer_current_arch() -> CUDA:
    """The model of the present device, or of the one compiled for where there is none."""
    return CUDA("cuda")


def _has_version(arch: TileDevice, low: int, high: int) -> bool:
    return isinstance(arch, CUDA) and low <= arch.sm_version < high


def is_cuda_arch(arch: TileDevice) -> bool:
    return isinstance(arch, CUDA)


def is_volta_arch(arch: TileDevice) -> bool:
    return _has_version(arch, 70, 75)


def is_ampere_arch(arch: TileDevice) -> bool:
    return _has_version(arch, 80, 89)


def is_ada_arch(arch: TileDevice) -> bool:
    return _has_version(arch, 89, 90)


def is_hopper_arch(arch: TileDevice) -> bool:
    return _has_version(arch, 90, 100)


def is_cdna_arch(arch: TileDevice) -> bool:
    return isinstance(arch, CDNA)


def is_cpu_arch(arch: TileDevice) -> bool:
    return isinstance(arch, CPU)
