# SPDX-License-Identifier: Apache-2.0
"""Every test compiles with the executable specification on: a malformed program between levels is a failure."""

from __future__ import annotations

import os

os.environ.setdefault("TILELANG_VERIFY", "1")
