# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts in three launches of one function: every token goes through its k experts, each a gated MLP.

    y[t] = sum over the experts e of token t:  weight[t, e] * (silu(x[t] @ gate[e]) * (x[t] @ up[e])) @ down[e]

`route` orders the (token, expert) pairs by expert and pads the list of each expert to whole tiles, so that a tile of
rows has one expert. The first launch gathers the tokens in that order, for the copy engine moves whole tiles; the
second multiplies them with gate and up at once; the third multiplies with down, weighs the rows, and adds them to their
tokens.

`python example_fused_moe.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

BLOCK_M = 128  # pairs of a tile


@tilelang.jit
def fused_moe(
    tokens,
    dim,
    hidden,
    experts,
    pairs,
    block_M=BLOCK_M,
    block_N=128,
    block_K=64,
    num_stages=4,
    threads=256,
    dtype="bfloat16",
):
    """A kernel (x, gate, up, down, token_of, expert_of, weight_of, rows, inner, y): y (tokens, dim) float32 += ..

    `pairs` is the length of the padded lists token_of (-1: padding) and weight_of, a multiple of block_M; expert_of has
    one entry a tile of block_M pairs. `rows` (pairs, dim) and `inner` (pairs, hidden) are workspaces. A block computes
    block_N columns of both gate and up, and 2 * block_N of down.
    """
    tiles = pairs // block_M

    @T.prim_func
    def main(
        x: T.Tensor((tokens, dim), dtype),
        gate: T.Tensor((experts, dim, hidden), dtype),
        up: T.Tensor((experts, dim, hidden), dtype),
        down: T.Tensor((experts, hidden, dim), dtype),
        token_of: T.Tensor((pairs,), "int32"),
        expert_of: T.Tensor((tiles,), "int32"),
        weight_of: T.Tensor((pairs,), "float32"),
        rows: T.Tensor((pairs, dim), dtype),
        inner: T.Tensor((pairs, hidden), dtype),
        y: T.Tensor((tokens, dim), "float32"),
    ):
        with T.Kernel(T.ceildiv(dim, 512), T.ceildiv(pairs, 8), threads=128) as (bx, by):
            for i, j in T.Parallel(8, 512):
                pair, column = by * 8 + i, bx * 512 + j
                if pair < pairs and column < dim:
                    token = token_of[pair]
                    rows[pair, column] = T.if_then_else(token >= 0, x[token, column], 0)

        with T.Kernel(T.ceildiv(hidden, block_N), tiles, threads=threads) as (bx, by):
            rows_shared = T.alloc_shared((block_M, block_K), dtype)
            gate_shared = T.alloc_shared((block_K, block_N), dtype)
            up_shared = T.alloc_shared((block_K, block_N), dtype)
            gate_local = T.alloc_fragment((block_M, block_N), "float32")
            up_local = T.alloc_fragment((block_M, block_N), "float32")
            expert = expert_of[by]
            T.clear(gate_local)
            T.clear(up_local)
            for k in T.Pipelined(T.ceildiv(dim, block_K), num_stages=num_stages):
                T.copy(rows[by * block_M, k * block_K], rows_shared)
                T.copy(gate[expert, k * block_K, bx * block_N], gate_shared)
                T.copy(up[expert, k * block_K, bx * block_N], up_shared)
                T.gemm(rows_shared, gate_shared, gate_local)
                T.gemm(rows_shared, up_shared, up_local)
            for i, j in T.Parallel(block_M, block_N):
                up_local[i, j] *= gate_local[i, j] * T.sigmoid(gate_local[i, j])
            T.copy(up_local, inner[by * block_M, bx * block_N])

        with T.Kernel(T.ceildiv(dim, 2 * block_N), tiles, threads=threads) as (bx, by):
            inner_shared = T.alloc_shared((block_M, block_K), dtype)
            down_shared = T.alloc_shared((block_K, 2 * block_N), dtype)
            y_local = T.alloc_fragment((block_M, 2 * block_N), "float32")
            token = T.alloc_fragment((block_M,), "int32")
            weight = T.alloc_fragment((block_M,), "float32")
            expert = expert_of[by]
            T.clear(y_local)
            for k in T.Pipelined(T.ceildiv(hidden, block_K), num_stages=num_stages):
                T.copy(inner[by * block_M, k * block_K], inner_shared)
                T.copy(down[expert, k * block_K, bx * 2 * block_N], down_shared)
                T.gemm(inner_shared, down_shared, y_local)
            T.copy(token_of[by * block_M], token)
            T.copy(weight_of[by * block_M], weight)
            for i, j in T.Parallel(block_M, 2 * block_N):
                column = bx * 2 * block_N + j
                if token[i] >= 0 and column < dim:
                    T.atomic_add(y[token[i], column], y_local[i, j] * weight[i])

    return main


def route(
    experts_of: torch.Tensor, weights: torch.Tensor, experts: int, block_M: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(token_of, expert_of, weight_of) for experts_of and weights (tokens, k)."""
    token_of, expert_of, weight_of = [], [], []
    for expert in range(experts):
        token, place = torch.nonzero(experts_of == expert, as_tuple=True)
        padding = -len(token) % block_M
        token_of.append(torch.nn.functional.pad(token, (0, padding), value=-1))
        weight_of.append(torch.nn.functional.pad(weights[token, place], (0, padding)))
        expert_of += [expert] * ((len(token) + padding) // block_M)
    device = weights.device
    return torch.cat(token_of).int(), torch.tensor(expert_of, dtype=torch.int32, device=device), torch.cat(weight_of)


def make_inputs(
    tokens: int, dim: int, hidden: int, experts: int, k: int, block_M: int, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    """The kernel's tensors, and experts_of and weights (tokens, k), from which the lists are made."""
    x = torch.randn(tokens, dim, device=device).bfloat16()
    gate, up = ((torch.randn(experts, dim, hidden, device=device) * dim**-0.5).bfloat16() for _ in range(2))
    down = (torch.randn(experts, hidden, dim, device=device) * hidden**-0.5).bfloat16()
    weights, experts_of = torch.randn(tokens, experts, device=device).softmax(dim=1).topk(k)
    token_of, expert_of, weight_of = route(experts_of, weights, experts, block_M)
    return {
        **{"x": x, "gate": gate, "up": up, "down": down},
        **{"token_of": token_of, "expert_of": expert_of, "weight_of": weight_of},
        "rows": x.new_empty(len(token_of), dim),
        "inner": x.new_empty(len(token_of), hidden),
        **{"experts_of": experts_of, "weights": weights},
    }


def run(kernel: tilelang.JITKernel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    y = torch.zeros_like(inputs["x"], dtype=torch.float32)
    names = ("x", "gate", "up", "down", "token_of", "expert_of", "weight_of", "rows", "inner")
    kernel(*(inputs[name] for name in names), y)
    return y


def reference(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x = inputs["x"].float()
    y = torch.zeros_like(x)
    for expert in range(len(inputs["gate"])):
        token, place = torch.nonzero(inputs["experts_of"] == expert, as_tuple=True)
        gate, up, down = (inputs[name][expert].float() for name in ("gate", "up", "down"))
        inner = torch.nn.functional.silu(x[token] @ gate) * (x[token] @ up)
        y.index_add_(0, token, (inner @ down) * inputs["weights"][token, place, None])
    return y


def check(kernel: tilelang.JITKernel, inputs: dict[str, torch.Tensor]) -> float:
    return assert_relative_error(run(kernel, inputs), reference(inputs), 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"tokens": (4096, 40), "dim": (2048, 128), "hidden": (1408, 64), "experts": (64, 4), "k": (6, 2)}
    for name, (large, small) in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=large if on_gpu else small)
    args = parser.parse_args()

    size = (args.tokens, args.dim, args.hidden, args.experts)
    inputs = make_inputs(*size, args.k, BLOCK_M, device="cuda" if on_gpu else "cpu")
    kernel = fused_moe(*size, len(inputs["token_of"]))
    print(f"relative error {check(kernel, inputs):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: run(kernel, inputs))
        flops = 6 * args.tokens * args.k * args.dim * args.hidden
        print(f"{ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s, without the padding")


if __name__ == "__main__":
    main()
