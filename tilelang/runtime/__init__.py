# SPDX-License-Identifier: Apache-2.0
"""Runs compiled kernels: argument checks, launching, export and reload. Knows nothing of the compiler.

Importing it loads neither TVM nor torch.
"""

from __future__ import annotations

from tilelang.runtime.kernel import CudaKernel, load
from tilelang.runtime.plan import LaunchPlan
from tilelang.runtime.signature import KernelParam, Signature

__all__ = ["CudaKernel", "KernelParam", "LaunchPlan", "Signature", "load"]
