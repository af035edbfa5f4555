# SPDX-License-Identifier: Apache-2.0
"""Facts of the present CUDA device; those of the architecture compiled for where there is none."""

from __future__ import annotations

from tilelang.jit.target import cuda_arch
from tilelang.runtime import device as devices

__all__ = ["get_max_dynamic_shared_size_bytes", "get_num_sms"]


def get_num_sms(device: int = 0) -> int:
    """Streaming multiprocessors."""
    return devices.sm_count(device) or cuda_arch().num_sms


def get_max_dynamic_shared_size_bytes(device: int = 0) -> int:
    """Most dynamic shared memory of a block, in bytes."""
    return cuda_arch().smem_bytes_per_block
