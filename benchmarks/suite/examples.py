# SPDX-License-Identifier: Apache-2.0
"""The kernels under test are those of examples/, which is no package: modules of it by folder and name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["EXAMPLES", "ROOT", "example"]

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"


def example(folder: str, name: str) -> ModuleType:
    """The module examples/FOLDER/NAME.py. Modules beside it are found by it as in that folder."""
    at = str(EXAMPLES / folder)
    if at not in sys.path:
        sys.path.insert(0, at)
    return importlib.import_module(name)
