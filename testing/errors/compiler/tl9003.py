# SPDX-License-Identifier: Apache-2.0
# A machine without the disassembler.
from unittest.mock import patch

from tilelang.codegen import compile as toolchain

with patch.object(toolchain, "find_tool", lambda name: None):
    toolchain.disassemble(b"")
