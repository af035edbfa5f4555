# SPDX-License-Identifier: Apache-2.0
"""Tensors that two processes of one machine see, in files of shared memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

__all__ = ["folder", "read", "write"]

_MEMORY = Path("/dev/shm")


def folder(tensors: Sequence[torch.Tensor]) -> tempfile.TemporaryDirectory[str]:
    """A folder for the files of these tensors: in memory where the machine has room for them there."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    fits = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * size
    return tempfile.TemporaryDirectory(dir=_MEMORY if fits else None)


def write(path: Path, tensor: torch.Tensor) -> dict[str, Any]:
    """Writes the elements of a tensor and gives what `read` takes: a description that JSON can hold."""
    content = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    path.write_bytes(b"")
    if content.numel():
        torch.from_file(str(path), shared=True, size=content.numel(), dtype=torch.uint8).copy_(content)
    kind = str(tensor.dtype).removeprefix("torch.")
    return {"path": str(path), "dtype": kind, "shape": list(tensor.shape), "device": tensor.device.type}


def read(what: dict[str, Any]) -> torch.Tensor:
    """A copy of a written tensor, on the kind of device where it was."""
    kind, shape = getattr(torch, what["dtype"]), what["shape"]
    out = torch.empty(shape, dtype=kind, device=what["device"])
    if out.numel():
        size = out.numel() * out.element_size()
        out.view(-1).view(torch.uint8).copy_(torch.from_file(what["path"], shared=True, size=size, dtype=torch.uint8))
    return out
