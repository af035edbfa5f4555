# SPDX-License-Identifier: Apache-2.0
"""The two kinds of `if`: decided by Python while tracing, or a branch of the device."""

from __future__ import annotations

from tvm import ir, tirx

from tilelang.tir_builder.builder import Builder, Frame

__all__ = ["DeviceBranch", "PythonBranch"]


class PythonBranch:
    """Python knows the condition: one side is traced, in the enclosing frame."""

    __slots__ = ("condition",)

    def __init__(self, condition: bool) -> None:
        self.condition = condition

    def then(self) -> bool:
        return self.condition

    def otherwise(self) -> bool:
        return not self.condition

    def leave(self) -> None:
        """The traced side ends."""

    def close(self) -> None:
        """The statement ends."""


class DeviceBranch:
    """Both sides are traced, each in a frame of its own."""

    def __init__(self, builder: Builder, condition: ir.Expr) -> None:
        self.builder = builder
        self.condition = condition
        self.span = builder.span
        self.frame: Frame | None = None
        self.sides: list[tirx.Stmt] = []

    def then(self) -> bool:
        self.frame = self.builder.push("then")
        return True

    def otherwise(self) -> bool:
        self.frame = self.builder.push("else")
        return True

    def leave(self) -> None:
        assert self.frame is not None
        self.sides.append(self.builder.pop(self.frame))

    def close(self) -> None:
        then, *otherwise = self.sides
        other = otherwise[0] if otherwise else None
        self.builder.emit(tirx.IfThenElse(self.condition, then, other, span=self.span))
