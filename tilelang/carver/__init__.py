# SPDX-License-Identifier: Apache-2.0
"""Device questions of user programs, under the path they import them from."""

from __future__ import annotations

from tilelang.carver import arch

__all__ = ["arch"]
