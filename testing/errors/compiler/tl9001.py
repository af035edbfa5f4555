# SPDX-License-Identifier: Apache-2.0
# A machine without a CUDA compiler.
from unittest.mock import patch

from tilelang.codegen import compile as toolchain

with patch.object(toolchain.nvrtc, "is_available", lambda: False), patch.object(toolchain, "nvcc_path", lambda: None):
    toolchain.compile_cuda("", "sm_90a")
