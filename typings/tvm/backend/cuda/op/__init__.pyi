# SPDX-License-Identifier: Apache-2.0
# TVM objects are untyped here: its own annotations describe constructors more narrowly than it accepts.
from typing import Any

def __getattr__(name: str) -> Any: ...
