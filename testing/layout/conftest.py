# SPDX-License-Identifier: Apache-2.0
"""Hypothesis budget of the layout tests: deterministic, and short enough to run on every change."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("layout", deadline=None, max_examples=30, derandomize=True, print_blob=True)
settings.load_profile("layout")
