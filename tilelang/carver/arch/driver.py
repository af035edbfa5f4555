# SPDX-License-Identifier: Apache-2.0
"""Facts of the present CUDA device; those of the architecture compiled for where there is none."""

from __future__ import annotations

from tilelang.jit.target import cuda_arch
from tilelang.runtime import device as devices

__all__ = [
    "get_max_dynamic_shared_size_bytes",
    "get_num_sms",
    "get_persisting_l2_cache_max_size",
    "get_registers_per_block",
    "get_shared_memory_per_block",
]

_STATIC_SHARED_BYTES = 48 * 1024  # of a block, on every architecture (CUDA programming guide, compute capabilities)


def get_num_sms(device: int = 0) -> int:
    """Streaming multiprocessors."""
    return devices.sm_count(device) or cuda_arch().num_sms


def get_max_dynamic_shared_size_bytes(device: int = 0) -> int:
    """Most dynamic shared memory of a block, in bytes."""
    return cuda_arch().smem_bytes_per_block


def get_shared_memory_per_block(device: int = 0, format: str = "bytes") -> int:
    """Most shared memory of a block that does not ask for more, in bytes; "kb" and "mb" are the other formats."""
    divisors = {"bytes": 1, "kb": 1 << 10, "mb": 1 << 20}
    if format not in divisors:
        raise ValueError(f"format is {', '.join(divisors)}, got {format!r}")
    return _STATIC_SHARED_BYTES // divisors[format]


def get_registers_per_block(device: int = 0) -> int:
    """Registers of 32 bits that the threads of a block share."""
    return cuda_arch().regs_per_sm


def get_persisting_l2_cache_max_size(device: int = 0) -> int:
    """Most bytes of L2 that may be set aside, three quarters of it."""
    return cuda_arch().l2_bytes // 4 * 3
