# SPDX-License-Identifier: Apache-2.0
"""The two kernels of Mamba-2 against float64: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import example_mamba_chunk_scan as scan  # noqa: E402
import example_mamba_chunk_state as state  # noqa: E402

# (batch, seqlen, chunk_size, ngroups, nheads, headdim, dstate): the second has tails in both sizes of a state.
SMALL = [(1, 128, 64, 2, 4, 64, 32), (1, 128, 128, 1, 1, 40, 72)]


@pytest.mark.parametrize("size", SMALL, ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_chunk_state(target: str, size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    state.check(state.chunk_state_fwd.with_options(target=target)(*size), state.make_inputs(*size))


@pytest.mark.parametrize("size", SMALL, ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_chunk_scan(target: str, size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    scan.check(scan.chunk_scan_fwd.with_options(target=target)(*size), scan.make_inputs(*size))


@pytest.mark.gpu
@pytest.mark.parametrize("example", [state, scan], ids=["state", "scan"])
@pytest.mark.parametrize("size", [(2, 1024, 256, 1, 8, 64, 128), (2, 512, 128, 2, 4, 40, 72)], ids=str)
def test_gpu(size: tuple[int, ...], example) -> None:
    torch.manual_seed(0)
    build = state.chunk_state_fwd if example is state else scan.chunk_scan_fwd
    example.check(build(*size), example.make_inputs(*size, device="cuda"))
