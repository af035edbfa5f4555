# SPDX-License-Identifier: Apache-2.0
"""`python -m tilelang`, for where the console script is not installed."""

from __future__ import annotations

from tilelang.cli import main

if __name__ == "__main__":
    main()
