# SPDX-License-Identifier: Apache-2.0
"""Where the tensors come from that candidates are checked and timed on.

In order: tensors captured by `set_autotune_inputs`, the call's own tensors (eager kernels), the user's `supply_prog`,
and at last random tensors of the kernel's shapes. The capture is local to a thread, so two tunings do not mix.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["get_autotune_inputs", "set_autotune_inputs"]

_local = threading.local()


@contextmanager
def set_autotune_inputs(*args: Any) -> Iterator[None]:
    """Tune on these tensors inside the `with`; a single list or tuple counts as the arguments."""
    values = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
    before = get_autotune_inputs()
    _local.values = values
    try:
        yield
    finally:
        _local.values = before


def get_autotune_inputs() -> list[Any] | None:
    """The captured tensors of this thread, or None."""
    return getattr(_local, "values", None)
