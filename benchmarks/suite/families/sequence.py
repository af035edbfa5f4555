# SPDX-License-Identifier: Apache-2.0
"""Attention of other kinds: latent (MLA) decoding, block-sparse, linear, and the kernels of Mamba-2."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ..contest import Case, Machine, Prepare, Setup
from ..examples import example
from .attention import flash3_interface, sdpa

__all__ = ["block_sparse", "latent", "linear", "mamba"]

LIMIT, EAGER_LIMIT = 8e-3, 3e-2


def latent(machine: Machine) -> list[Case]:
    """MLA decoding, 128 heads over one latent of 512 and 64: a step for each of a batch's sequences."""
    sizes = machine.pick([(128, 1024), (128, 8192), (1, 8192), (16, 8192)], [(2, 256)])
    heads, dim, pe_dim = (16, 128, 64) if machine.small else (128, 512, 64)
    return [_latent_case(machine, batch, keys, heads, dim, pe_dim) for batch, keys in sizes]


def _latent_case(machine: Machine, batch: int, keys: int, heads: int, dim: int, pe_dim: int) -> Case:
    def setup() -> Setup:
        module = example("deepseek_mla", "example_mla_decode")
        processors = 4 if machine.small else torch.cuda.get_device_properties(0).multi_processor_count
        splits = module.choose_splits(batch, heads, 1, keys, processors)
        size = (heads, 1, keys, dim, pe_dim, splits)
        inputs = module.make_inputs([keys] * batch, *size, device=machine.device)
        q, q_pe, kv, k_pe = inputs[:4]
        scale = (dim + pe_dim) ** -0.5

        def eager(q: torch.Tensor, q_pe: torch.Tensor, kv: torch.Tensor, k_pe: torch.Tensor) -> torch.Tensor:
            latents = kv[:, :, 0]
            scores = q @ latents.transpose(1, 2) + q_pe @ k_pe[:, :, 0].transpose(1, 2)
            return (scores * scale).softmax(-1) @ latents

        def ours() -> Any:
            kernel = module.latent_decode(batch, *size)
            return lambda: kernel(*inputs)

        def flash3() -> Any:
            interface = flash3_interface()
            given = (q_pe[:, None], k_pe, kv)

            def call() -> torch.Tensor:
                out = interface.flash_attn_func(*given, softmax_scale=scale, qv=q[:, None], num_splits=0)
                return (out[0] if isinstance(out, tuple) else out)[:, 0]

            return call

        want = torch.cat([eager(*(x[b : b + 1].float() for x in (q, q_pe, kv, k_pe))) for b in range(batch)])
        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "fa3 bf16": flash3,
            "torch": lambda: lambda: eager(q, q_pe, kv, k_pe),
        }
        return Setup(want, calls, LIMIT, {"torch": EAGER_LIMIT, "fa3 bf16": 1.5e-2})

    pairs = float(batch * keys)
    name = f"mla B{batch} H{heads} keys {keys}"
    work, moved = 2 * pairs * heads * (2 * dim + pe_dim), 2 * pairs * (dim + pe_dim)
    return Case(name, setup, work, moved, "keys", keys, f"B{batch} H{heads}")


def block_sparse(machine: Machine) -> list[Case]:
    """Attention in which a tile of 64 queries sees a random share of the tiles of keys."""
    shapes = machine.pick(
        [(1, 16, 8192, 128, 0.23), (1, 16, 8192, 128, 0.1), (4, 16, 4096, 64, 0.23)], [(1, 2, 256, 64, 0.4)]
    )
    return [_sparse_case(machine, *shape) for shape in shapes]


def _sparse_case(machine: Machine, batch: int, heads: int, length: int, dim: int, density: float) -> Case:
    size = (batch, heads, length, length, dim)

    def setup() -> Setup:
        module = example("blocksparse_attention", "example_block_sparse_attn")
        q, k, v, mask = module.make_inputs(*size, density, device=machine.device)
        lists, counts = module.indices_of(mask)

        def ours(tiles: tuple[torch.Tensor, ...], most: int | None) -> Any:
            kernel = module.block_sparse_attn(*size, False, most)
            return lambda: kernel(q, k, v, *tiles)

        def flex() -> Any:
            attention = importlib.import_module("torch.nn.attention.flex_attention")
            seen = mask.bool()
            choose = lambda b, h, i, j: seen[b, h, i // 64, j // 64]  # noqa: E731
            blocks = attention.create_block_mask(choose, batch, heads, length, length, machine.device, BLOCK_SIZE=64)
            call = torch.compile(attention.flex_attention, dynamic=False)
            tile = {"BLOCK_M": 64, "BLOCK_N": 64}  # a tile of its own must not be larger than one of the mask
            return lambda: call(q, k, v, block_mask=blocks, kernel_options=tile)

        def triton() -> Any:
            peers = importlib.import_module("..triton_peers", __package__)
            return peers.sparse_attention(q, k, v, lists, counts)

        def one(b: int, h: int) -> torch.Tensor:
            at = (slice(b, b + 1), slice(h, h + 1))
            return module.reference(*(x[at].float() for x in (q, k, v)), mask[at], False)[0, 0]

        want = torch.stack([torch.stack([one(b, h) for h in range(heads)]) for b in range(batch)])
        calls: dict[str, Prepare] = {
            "tilelang mask": lambda: ours((mask, module.ends_of(mask)), None),
            "tilelang lists": lambda: ours((lists, counts), lists.shape[-1]),
        }
        if not machine.small:
            calls["triton lists"] = triton
            calls["flex_attention"] = flex
        dense: dict[str, Prepare] = {"ceiling dense cudnn": lambda: sdpa("CUDNN_ATTENTION", q, k, v, False)}
        return Setup(want, calls, 2e-3, unchecked=dense)

    work = 4.0 * batch * heads * length * length * dim * density
    return Case(f"block-sparse B{batch} H{heads} S{length} D{dim} {density:.0%}", setup, work)


def linear(machine: Machine) -> list[Case]:
    """Causal linear attention with a decay for each head, forward; (batch, length, heads, 128)."""
    shapes = machine.pick([(8, 2048, 32, 128), (8, 8192, 16, 128), (32, 1024, 32, 64)], [(1, 128, 2, 64)])
    return [_linear_case(machine, *shape) for shape in shapes]


def _linear_case(machine: Machine, batch: int, length: int, heads: int, dim: int) -> Case:
    def setup() -> Setup:
        module = example("linear_attention", "example_linear_attn")
        q, k, v, decay = module.make_inputs(batch, length, heads, dim, dim, device=machine.device)

        def ours() -> Any:
            kernel = module.linear_attn_fwd(batch, length, heads, dim, dim)
            return lambda: kernel(q, k, v, decay)[0]

        def fla() -> Any:
            chunk = importlib.import_module("fla.ops.simple_gla").chunk_simple_gla
            factors = (decay * 0.6931471805599453).expand(batch, length, heads).contiguous()
            return lambda: chunk(q, k, v, factors, scale=dim**-0.5)[0]

        def by_heads(kind: torch.dtype) -> torch.Tensor:
            out = torch.empty(q.shape, dtype=kind, device=q.device)
            for b in range(batch):
                for h in range(heads):
                    at = (slice(b, b + 1), slice(None), slice(h, h + 1))
                    out[at] = module.reference(q[at].to(kind), k[at].to(kind), v[at].to(kind), decay[h : h + 1])[0]
            return out

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "fla": fla,
            "torch, quadratic": lambda: lambda: module.reference(q, k, v, decay)[0],
        }
        return Setup(by_heads(torch.float32), calls, LIMIT, {"torch, quadratic": EAGER_LIMIT, "fla": 1.5e-2})

    work = 4.0 * batch * length * heads * (32 * 2 * dim + dim * dim)
    return Case(f"linear attention B{batch} S{length} H{heads} D{dim}", setup, work)


def mamba(machine: Machine) -> list[Case]:
    """Mamba-2: the state that each chunk leaves, and the outputs from it."""
    names = ("batch", "seqlen", "chunk_size", "ngroups", "nheads", "headdim", "dstate")
    sizes = machine.pick([(8, 4096, 256, 1, 80, 64, 128)], [(1, 128, 64, 1, 2, 64, 32)])
    cases = []
    for size in (dict(zip(names, values, strict=True)) for values in sizes):
        cases.append(_mamba_case(machine, "example_mamba_chunk_scan", "chunk_scan_fwd", size))
        cases.append(_mamba_case(machine, "example_mamba_chunk_state", "chunk_state_fwd", size))
    return cases


def _mamba_case(machine: Machine, name: str, factory: str, size: dict[str, int]) -> Case:
    def setup() -> Setup:
        module = example("linear_attention", name)
        inputs = module.make_inputs(**size, device=machine.device)

        def ours() -> Any:
            kernel = getattr(module, factory)(**size)
            return lambda: kernel(*inputs)

        def mamba_ssm() -> Any:
            peers = importlib.import_module(f"mamba_ssm.ops.triton.ssd_{factory.removesuffix('_fwd')}")
            call = getattr(peers, f"_{factory}")
            if factory == "chunk_state_fwd":
                return lambda: call(*inputs, states_in_fp32=False)
            cb, x, dt, decays, c, states, d = inputs
            return lambda: call(cb, x, dt, decays, c, states, D=d)[0]

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "mamba_ssm": mamba_ssm,
            "torch": lambda: lambda: module.reference(*inputs),
        }
        return Setup(_by_batch(module.reference, inputs), calls, 2e-3, {"torch": EAGER_LIMIT, "mamba_ssm": 1e-2})

    tokens = float(size["batch"] * size["seqlen"] * size["nheads"] * size["headdim"])
    scan = tokens * (size["chunk_size"] + 2 * size["dstate"])
    work = scan if factory == "chunk_scan_fwd" else 2 * tokens * size["dstate"]
    return Case(f"mamba-2 {factory.removesuffix('_fwd')} B{size['batch']} S{size['seqlen']}", setup, work)


def _by_batch(reference: Any, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The reference in float32, a sequence at a time; what has no batch (one dimension) goes to all."""
    batch = max(x.shape[0] for x in inputs if x.dim() > 1)
    parts = [[x if x.dim() == 1 else x[b : b + 1] for x in inputs] for b in range(batch)]
    return torch.cat([reference(*(x.float() for x in part)) for part in parts])
