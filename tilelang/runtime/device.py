# SPDX-License-Identifier: Apache-2.0
"""Which CUDA devices this machine has, asked of the driver when first needed and remembered.

Probes never raise: without a driver, or with one that does not start, there are no devices.
"""

from __future__ import annotations

import ctypes
import functools

from tilelang.support.env import env

__all__ = ["compute_capability", "device_count", "driver_library", "sm_count", "why_no_device"]

_MAJOR, _MINOR, _SM_COUNT = 75, 76, 16  # CUdevice_attribute, cuda.h


def driver_library() -> str:
    """Name or path of the CUDA driver library."""
    return env.libcuda.get() or "libcuda.so.1"


@functools.cache
def _probe(library: str) -> tuple[ctypes.CDLL | None, int, str]:
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        return None, 0, f"the CUDA driver is not installed ({error})"
    status = driver.cuInit(0)
    if status != 0:
        return None, 0, f"the CUDA driver does not start (cuInit gave error {status})"
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return driver, 0, "the CUDA driver sees no device"
    return driver, count.value, ""


def device_count() -> int:
    """Number of CUDA devices; 0 where there is none."""
    return _probe(driver_library())[1]


def why_no_device() -> str:
    """The reason why `device_count()` is 0, or an empty string."""
    return _probe(driver_library())[2]


def _attribute(attribute: int, device: int) -> int | None:
    driver, count, _ = _probe(driver_library())
    if driver is None or device >= count:
        return None
    value = ctypes.c_int()
    return value.value if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0 else None


def compute_capability(device: int = 0) -> tuple[int, int] | None:
    """(major, minor) of a device, or None where there is no such device."""
    major, minor = _attribute(_MAJOR, device), _attribute(_MINOR, device)
    return None if major is None or minor is None else (major, minor)


def sm_count(device: int = 0) -> int | None:
    """Streaming multiprocessors of a device, or None where there is no such device."""
    return _attribute(_SM_COUNT, device)
