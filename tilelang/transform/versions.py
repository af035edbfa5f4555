# SPDX-License-Identifier: Apache-2.0
"""Accesses to buffers with versions: the version is one more, leading, index."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.stmts import buffers_in

__all__ = ["read_version", "versioned_region", "write_version"]


def versioned_region(region: Any, versions: dict[Any, Any], slot: Any) -> Any:
    """The region in version `slot` of its buffer."""
    return tirx.BufferRegion(
        versions[region.source], [ir.Range.from_min_extent(slot, tirx.const(1, "int32")), *region.region]
    )


def read_version(stmt: Any, versions: dict[Any, Any], slot: Any) -> Any:
    """The statement with every read of a buffer in `versions` going to version `slot`."""

    def load(n: Any) -> Any:
        return tirx.BufferLoad(versions[n.source], [slot, *n.indices]) if n.source in versions else n

    def region(n: Any) -> Any:
        return versioned_region(n, versions, slot) if n.source in versions else n

    if not buffers_in(stmt) & set(versions):
        return stmt
    return tvm_ffi.structural_map(stmt, [(ir.TensorLoad, load), (ir.TensorRegion, region)])


def write_version(stmt: Any, versions: dict[Any, Any], slot: Any) -> Any:
    """The statement with every store to a buffer in `versions` going to version `slot`."""

    def store(s: Any) -> Any:
        if s.buffer not in versions:
            return s
        return tirx.BufferStore(versions[s.buffer], s.value, [slot, *s.indices], span=s.span)

    return tvm_ffi.structural_map(stmt, (tirx.BufferStore, store))
