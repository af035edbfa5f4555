# SPDX-License-Identifier: Apache-2.0
# Source of the user's that is no CUDA.
from unittest.mock import patch

from tilelang.codegen import compile as toolchain

LOG = 'kernel.cu(1): error: identifier "nonsense" is undefined'
with (
    patch.object(toolchain.nvrtc, "is_available", lambda: True),
    patch.object(toolchain.nvrtc, "header_dirs", list),
    patch.object(toolchain.nvrtc, "compile_program", lambda text, flags: (False, b"", LOG, "")),
):
    toolchain.compile_cuda("nonsense", "sm_90a")
