# SPDX-License-Identifier: Apache-2.0
"""Makes the kernels of this folder, and the attention kernel of the code generation tests, importable."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parent / "codegen"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
