# SPDX-License-Identifier: Apache-2.0
"""The cpu target: tile programs through TVM's llvm, with the exact meaning of the language and no notion of threads."""

from tilelang.codegen.cpu.build import CpuModule, build_cpu
from tilelang.codegen.cpu.lower import lower_to_cpu

__all__ = ["CpuModule", "build_cpu", "lower_to_cpu"]
