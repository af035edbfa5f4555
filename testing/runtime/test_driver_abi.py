# SPDX-License-Identifier: Apache-2.0
"""Our declarations of the CUDA driver API against the toolkit's cuda.h, by a compiler's static assertions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tilelang.target.toolchain import cuda_home

_CHECKS = r"""
#include <cuda.h>
#include <cstddef>
#define CUtensorMap OurTensorMap
#define CUlaunchAttribute OurLaunchAttribute
#define CUlaunchConfig OurLaunchConfig
#include "driver.h"
#undef CUtensorMap
#undef CUlaunchAttribute
#undef CUlaunchConfig
using namespace tilelang;
static_assert(sizeof(OurTensorMap) == sizeof(::CUtensorMap) && alignof(OurTensorMap) == alignof(::CUtensorMap), "map");
static_assert(sizeof(OurLaunchAttribute) == sizeof(::CUlaunchAttribute), "attribute");
static_assert(offsetof(OurLaunchAttribute, value) == offsetof(::CUlaunchAttribute, value), "attribute value");
static_assert(sizeof(OurLaunchConfig) == sizeof(::CUlaunchConfig), "config");
static_assert(offsetof(OurLaunchConfig, shared_bytes) == offsetof(::CUlaunchConfig, sharedMemBytes), "shared");
static_assert(offsetof(OurLaunchConfig, stream) == offsetof(::CUlaunchConfig, hStream), "stream");
static_assert(offsetof(OurLaunchConfig, attributes) == offsetof(::CUlaunchConfig, attrs), "attrs");
static_assert(kMaxDynamicSharedSizeBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, "shared size");
static_assert(kNonPortableClusterSize == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, "cluster size");
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING, "own stream");
static_assert(kCaptureActive == CU_STREAM_CAPTURE_STATUS_ACTIVE, "capture status");
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED, "capture mode");
static_assert(kLaunchCooperative == CU_LAUNCH_ATTRIBUTE_COOPERATIVE, "cooperative");
static_assert(kLaunchClusterDimension == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, "cluster");
static_assert(kLaunchProgrammatic == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, "programmatic");
static_assert(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 == 9 && CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 == 11, "element types");
static_assert(CU_TENSOR_MAP_SWIZZLE_128B == 3 && CU_TENSOR_MAP_L2_PROMOTION_L2_256B == 3, "map options");
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == 75, "");
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == 76, "");
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == 16, "");
"""


def _cuda_include() -> Path | None:
    home = cuda_home()
    return home / "include" if home is not None and (home / "include" / "cuda.h").exists() else None


@pytest.mark.nvcc
def test_declarations_match_the_toolkit(tmp_path: Path) -> None:
    include, compiler = _cuda_include(), shutil.which("c++") or shutil.which("g++")
    if include is None or compiler is None:
        pytest.skip("needs cuda.h and a C++ compiler")
    source = tmp_path / "check.cc"
    source.write_text(_CHECKS)
    native = Path(__file__).parents[2] / "src"
    subprocess.run([compiler, "-std=c++17", "-fsyntax-only", "-I", native, "-I", include, source], check=True)
