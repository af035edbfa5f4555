# SPDX-License-Identifier: Apache-2.0
"""Wishes about the roles that the compiler makes: how many registers producers and consumers have."""

from __future__ import annotations

import warnings
from typing import Any

from tilelang.ir import attrs
from tilelang.language.control import check_registers
from tilelang.language.kernel import current_launch

__all__ = [
    "annotate_consumer_reg_alloc",
    "annotate_producer_reg_dealloc",
    "annotate_ws_pipeline_depth",
    "disable_warp_group_reg_alloc",
    "no_set_max_nreg",
]


def _budgets(name: str, **wanted: Any) -> None:
    launch = current_launch(name)
    known = dict(part.split("=") for part in launch.attrs.get(attrs.REGISTERS, []))
    launch.attrs[attrs.REGISTERS] = [f"{k}={v}" for k, v in {**known, **wanted}.items()]


def no_set_max_nreg() -> None:
    """Leave the register budgets of the roles alone: every thread keeps its equal share."""
    _budgets("no_set_max_nreg", change=0)


disable_warp_group_reg_alloc = no_set_max_nreg


def annotate_producer_reg_dealloc(reg_count: int = 24) -> None:
    """Registers of a thread that loads, 24 to 240 in steps of 8, where the compiler makes such a role."""
    _budgets("annotate_producer_reg_dealloc", producer=check_registers(reg_count, "reg_count"))


def annotate_consumer_reg_alloc(reg_count: int = 240) -> None:
    """Registers of a thread that computes, 24 to 240 in steps of 8, where the compiler makes such a role."""
    _budgets("annotate_consumer_reg_alloc", consumer=check_registers(reg_count, "reg_count"))


def annotate_ws_pipeline_depth(depth: int) -> None:
    """Has no effect: a ring of loaded tiles is as deep as num_stages of its T.Pipelined loop says."""
    current_launch("annotate_ws_pipeline_depth")
    warnings.warn(
        f"T.annotate_ws_pipeline_depth({depth}) has no effect: give num_stages={depth} to T.Pipelined", stacklevel=2
    )
