# SPDX-License-Identifier: Apache-2.0
"""`--update-golden` rewrites the expected texts of the error programs, to be reviewed like code."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts")
