# SPDX-License-Identifier: Apache-2.0
"""What a target makes of a program: what its kernel calls, and the texts that it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["Executable"]


class Executable:
    """Callable with all arguments, outputs included, checks included."""

    kernel_source: Any  # str: what the device compiler reads
    host_source: Any  # str: how it is launched

    def __call__(self, *args: Any) -> None:
        raise NotImplementedError

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """Device source; with `kernel_only=False` followed by the host side."""
        return self.kernel_source if kernel_only else f"{self.kernel_source}\n{self.host_source}"

    def get_host_source(self) -> str:
        return self.host_source

    def ptx(self) -> str:
        raise NotImplementedError

    def sass(self) -> str:
        raise NotImplementedError

    def save(self, path: Path) -> None:
        """Writes what `tilelang.runtime.load` reads."""
        raise NotImplementedError
