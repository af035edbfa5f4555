# SPDX-License-Identifier: Apache-2.0
"""What a search found: one `Trial` a configuration tried, one `AutotuneResult` for the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["AutotuneResult", "Trial"]


@dataclass(frozen=True)
class Trial:
    """One configuration: `latency` in ms, measured or estimated; or None with the reason in `error`."""

    config: Mapping[str, Any]
    latency: float | None = None
    error: str = ""


@dataclass(frozen=True)
class AutotuneResult:
    """The best configuration with its kernel. `measured` is False where no GPU was there to time anything."""

    config: Mapping[str, Any]
    latency: float
    measured: bool
    trials: tuple[Trial, ...]
    kernel: Any
    ref_latency: float | None = None

    @property
    def libcode(self) -> str:
        """The kernel's source text."""
        return self.kernel.get_kernel_source()

    @property
    def func(self) -> Any:
        """The tile program of the best configuration."""
        return self.kernel.prim_func
