# SPDX-License-Identifier: Apache-2.0
"""What holds in all tests: a malformed program between levels is a failure, and a run can be repeated exactly.

The random programs of hypothesis are the same on every run, so that a change is judged by itself; the search for new
ones is testing/fuzz/campaign.py.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

os.environ.setdefault("TILELANG_VERIFY", "1")

settings.register_profile("tests", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite expected texts, to be reviewed like code")
