# SPDX-License-Identifier: Apache-2.0
"""Public import path of arithmetic on sizes; the code stands elsewhere."""

from __future__ import annotations

from tilelang.support.integers import cdiv, next_power_of_2

__all__ = ["cdiv", "next_power_of_2"]
