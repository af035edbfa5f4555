# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts, beside torch's grouped products and a loop over experts."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ..contest import Case, Machine, Prepare, Setup
from ..examples import example

__all__ = ["fused"]

LIMIT = 1e-2


def fused(machine: Machine) -> list[Case]:
    """Tokens through their k experts, each a gated MLP; what routes them is prepared before."""
    sizes = machine.pick(
        [(4096, 2048, 1408, 64, 6), (512, 2048, 1408, 64, 6), (4096, 4096, 14336, 8, 2)], [(40, 128, 64, 4, 2)]
    )
    return [_case(machine, *size) for size in sizes]


def _case(machine: Machine, tokens: int, dim: int, hidden: int, experts: int, k: int) -> Case:
    module = example("fused_moe", "example_fused_moe")

    def setup() -> Setup:
        inputs = module.make_inputs(tokens, dim, hidden, experts, k, module.BLOCK_M, machine.device)

        def ours() -> Any:
            kernel = module.fused_moe(tokens, dim, hidden, experts, len(inputs["token_of"]))
            return lambda: module.run(kernel, inputs)

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "torch grouped": lambda: _grouped(inputs),
            "torch loop": lambda: _loop(inputs),
        }
        return Setup(module.reference(inputs), calls, LIMIT)

    name = f"moe {tokens} tokens {dim}x{hidden} {k} of {experts}"
    return Case(
        name, setup, 6.0 * tokens * k * dim * hidden, 0.0, "tokens", tokens, f"{experts} experts {dim}x{hidden}"
    )


def _sorted_pairs(inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(tokens, weights) of the pairs in the order of their experts, and where each expert's end."""
    flat = inputs["experts_of"].flatten()
    order = flat.argsort(stable=True)
    k = inputs["experts_of"].shape[1]
    ends = flat.bincount(minlength=len(inputs["gate"])).cumsum(0).int()
    return order // k, inputs["weights"].flatten()[order].float(), ends


def _grouped(inputs: dict[str, torch.Tensor]) -> Any:
    token, weight, ends = _sorted_pairs(inputs)

    def call() -> torch.Tensor:
        rows = inputs["x"][token]
        gate, up = (torch._grouped_mm(rows, inputs[name], ends) for name in ("gate", "up"))
        out = torch._grouped_mm(torch.nn.functional.silu(gate) * up, inputs["down"], ends)
        y = torch.zeros_like(inputs["x"], dtype=torch.float32)
        return y.index_add_(0, token, out.float() * weight[:, None])

    return call


def _loop(inputs: dict[str, torch.Tensor]) -> Any:
    token, weight, ends = _sorted_pairs(inputs)
    stops = [0, *ends.tolist()]

    def call() -> torch.Tensor:
        y = torch.zeros_like(inputs["x"], dtype=torch.float32)
        for expert, (start, stop) in enumerate(itertools.pairwise(stops)):
            mine = token[start:stop]
            rows = inputs["x"][mine]
            inner = torch.nn.functional.silu(rows @ inputs["gate"][expert]) * (rows @ inputs["up"][expert])
            y.index_add_(0, mine, (inner @ inputs["down"][expert]).float() * weight[start:stop, None])
        return y

    return call
