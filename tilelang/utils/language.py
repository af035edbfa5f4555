# SPDX-License-Identifier: Apache-2.0
"""Questions about buffers that macros ask while they are traced: where does one live, how large is it."""

from __future__ import annotations

from typing import Any

from tvm import tirx

__all__ = ["get_buffer_elems", "is_fragment", "is_global", "is_local", "is_shared", "is_shared_dynamic"]


def _scope(buffer: Any) -> str:
    found = getattr(buffer, "source", buffer)  # of a region, its buffer
    if not callable(getattr(found, "scope", None)):
        raise TypeError(f"a buffer or a region of one is asked about, got {type(buffer).__name__}")
    return str(found.scope())


def is_global(buffer: Any) -> bool:
    return _scope(buffer) == "global"


def is_shared(buffer: Any, allow_dynamic: bool = True) -> bool:
    """Shared memory; without `allow_dynamic` only that of `scope="shared"`."""
    return _scope(buffer) == "shared" or (allow_dynamic and is_shared_dynamic(buffer))


def is_shared_dynamic(buffer: Any) -> bool:
    return _scope(buffer) == "shared.dyn"


def is_local(buffer: Any) -> bool:
    return _scope(buffer) == "local"


def is_fragment(buffer: Any) -> bool:
    return _scope(buffer) == "local.fragment"


def get_buffer_elems(buffer: Any) -> Any:
    """Elements of a buffer; an expression where its shape has symbols."""
    count: Any = 1
    for extent in buffer.shape:
        count = count * (int(extent) if isinstance(extent, tirx.IntImm) else extent)
    return count
