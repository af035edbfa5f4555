# SPDX-License-Identifier: Apache-2.0
"""Attention: forward, with shared heads, backward, decoding, and results that must repeat."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch

from ..contest import Case, Machine, Prepare, Setup
from ..examples import example
from ..protocol import Clock, Flushed, KernelTime

__all__ = [
    "backward", "by_heads", "decode", "flash3", "flash3_interface", "float8", "forward", "grouped", "headline",
    "repeat", "sdpa",
]  # fmt: skip

# Largest relative error against float32: float16 outputs are rounded by 2e-4, float16 probabilities add about as much.
LIMIT, BF16_LIMIT, BACKWARD_LIMIT = 2e-3, 1e-2, 1e-2
REPEATS = 50  # launches that must agree bit for bit
AXIS = "sequence length"

# Batch, heads, heads of keys, length, head dimensions of keys and of values.
GROUPED = (
    (4, 32, 8, 4096, 128, 128), (1, 32, 8, 16384, 128, 128), (4, 32, 1, 4096, 64, 64), (4, 16, 16, 4096, 192, 128),
)  # fmt: skip
TOKENS, WIDTH = 16384, 2048  # batch x length and heads x head dimension of the table
HEADLINE = (1, 12, 2048, 64)
TABLE = ((64, 1024), (64, 4096), (64, 16384), (128, 1024), (128, 4096), (128, 16384), (256, 4096), (256, 16384))


def forward(machine: Machine) -> list[Case]:
    """Forward passes, (batch, heads, length, head dimension): the first shape in float16, all others in bfloat16."""
    table = [(TOKENS // length, WIDTH // dim, length, dim) for dim, length in TABLE]
    shapes = machine.pick([HEADLINE, *table], [(1, 2, 128, 64)])
    dtypes = [torch.float16, *[torch.bfloat16] * (len(shapes) - 1)]
    return [
        _forward_case(machine, *shape, causal, dtype)
        for shape, dtype in zip(shapes, dtypes, strict=True)
        for causal in (True, False)
    ]


def headline(machine: Machine) -> list[Case]:
    """The kernels alone, by the profiler, of the first shape of `attention`: events count the start of a launch too."""
    (shape,) = machine.pick([HEADLINE], [(1, 2, 128, 64)])
    return [_forward_case(machine, *shape, causal, torch.float16, KernelTime()) for causal in (True, False)]


def _forward_case(
    machine: Machine,
    batch: int,
    heads: int,
    length: int,
    dim: int,
    causal: bool,
    dtype: torch.dtype,
    clock: Clock | None = None,
) -> Case:
    module = example("flash_attention", "example_mha_fwd_bhsd")
    shape = (batch, heads, length, length, dim)

    def setup() -> Setup:
        q, k, v = (machine.randn(batch, heads, length, dim, dtype=dtype) for _ in range(3))

        def ours() -> Any:
            kernel = module.flashattn(*shape, causal, dtype=str(dtype).removeprefix("torch."))
            return lambda: kernel(q, k, v)

        calls: dict[str, Prepare] = {"tilelang": ours}
        calls["cudnn"] = lambda: sdpa("CUDNN_ATTENTION", q, k, v, causal)
        calls["fa3 bf16"] = lambda: flash3(q, k, v, causal)
        calls["flash"] = lambda: sdpa("FLASH_ATTENTION", q, k, v, causal)
        calls["triton"] = lambda: _triton(q, k, v, causal)
        arguments = {"batch": batch, "heads": heads, "length": length, "dim": dim, "causal": causal}
        arguments["dtype"] = str(dtype).removeprefix("torch.")
        calls |= machine.public("attention", "attention", arguments, q, k, v)
        limit = LIMIT if dtype == torch.float16 else BF16_LIMIT
        return Setup(by_heads(q, k, v, causal), calls, limit, {"fa3 bf16": BF16_LIMIT}, clock=clock or Flushed())

    mask = "causal" if causal else "full"
    kind = "f16" if dtype == torch.float16 else "bf16"
    name = f"attention {kind} B{batch} H{heads} S{length} D{dim} {mask}{', kernels alone' if clock else ''}"
    return Case(name, setup, module.flops(*shape, causal), 0.0, AXIS, length, f"D{dim} {mask}")


def by_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """float32 attention one head at a time: the scores of all heads at once need not fit."""
    reference = example("flash_attention", "example_mha_fwd_bhsd").reference
    out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=torch.float32, device=q.device)
    groups = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            at, kv = (slice(b, b + 1), slice(h, h + 1)), (slice(b, b + 1), slice(h // groups, h // groups + 1))
            out[at] = reference(q[at], k[kv], v[kv], causal)
    return out


def sdpa(backend: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, **options: Any) -> Any:
    """torch's fused attention by one backend, (batch, heads, length, head dimension)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call() -> torch.Tensor:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **options)

    return call


def flash3_interface() -> Any:
    """FlashAttention-3 where it is installed. Raises ModuleNotFoundError."""
    for name in ("flash_attn_interface", "fa3_fwd_interface"):
        if importlib.util.find_spec(name) is not None:
            return importlib.import_module(name)
    raise ModuleNotFoundError("FlashAttention-3 is not installed")


def flash3(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Any:
    """In bfloat16, the type that every build of it has."""
    interface = flash3_interface()
    q, k, v = (x.transpose(1, 2).contiguous().bfloat16() for x in (q, k, v))

    def call() -> torch.Tensor:
        out = interface.flash_attn_func(q, k, v, causal=causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return call


def _triton(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Any:
    from .. import triton_peers

    return triton_peers.attention(q, k, v, causal)


def grouped(machine: Machine) -> list[Case]:
    """Heads of keys and values shared by several heads of queries, bfloat16, (batch, length, heads, head dimension)."""
    shapes = [
        (4, 32, 8, 4096, 128, 128),
        (1, 32, 8, 16384, 128, 128),
        (4, 32, 1, 4096, 64, 64),
        (4, 16, 16, 4096, 192, 128),
    ]
    shapes = machine.pick(shapes, [(1, 4, 2, 128, 64, 64)])
    return [_grouped_case(machine, *shape, causal) for shape in shapes for causal in (True, False)]


def _grouped_case(
    machine: Machine, batch: int, heads: int, kv_heads: int, length: int, dim: int, dim_v: int, causal: bool
) -> Case:
    shape = (batch, heads, length, length, dim)

    def setup() -> Setup:
        q = machine.randn(batch, length, heads, dim, dtype=torch.bfloat16)
        k, v = (machine.randn(batch, length, kv_heads, d, dtype=torch.bfloat16) for d in (dim, dim_v))
        dense = [x.transpose(1, 2).contiguous() for x in (q, k, v)]

        def ours() -> Any:
            module = example("flash_attention", "example_gqa_fwd_bshd")
            kernel = module.gqa_fwd(*shape, causal, heads // kv_heads, dtype="bfloat16", dim_v=dim_v)
            return lambda: kernel(q, k, v)[0]

        def torch_by(backend: str) -> Any:
            call = sdpa(backend, *dense, causal, enable_gqa=True)
            return lambda: call().transpose(1, 2)

        def their() -> Any:
            interface = flash3_interface()

            def call() -> torch.Tensor:
                out = interface.flash_attn_func(q, k, v, causal=causal)
                return out[0] if isinstance(out, tuple) else out

            return call

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "cudnn": lambda: torch_by("CUDNN_ATTENTION"),
            "fa3 bf16": their,
            "flash": lambda: torch_by("FLASH_ATTENTION"),
        }
        return Setup(by_heads(*dense, causal).transpose(1, 2), calls, BF16_LIMIT)

    mask = "causal" if causal else "full"
    work = example("flash_attention", "example_mha_fwd_bhsd").flops(*shape, causal) * (dim + dim_v) / (2 * dim)
    size = f"D{dim}" if dim == dim_v else f"D{dim}/{dim_v}"
    name = f"attention B{batch} H{heads}/{kv_heads} S{length} {size} {mask}"
    return Case(name, setup, work, 0.0, AXIS, length, f"{heads}/{kv_heads} {size} {mask}")


def float8(machine: Machine) -> list[Case]:
    """Forward passes in float8 e4m3 with factors for each head; V comes transposed, for FlashAttention-3 as it is."""
    table = [(TOKENS // length, WIDTH // 128, length, 128) for length in (1024, 4096, 16384)]
    shapes = machine.pick(table, [(1, 2, 128, 64)])
    return [_float8_case(machine, *shape, causal) for shape in shapes for causal in (True, False)]


def _float8_case(machine: Machine, batch: int, heads: int, length: int, dim: int, causal: bool) -> Case:
    module = example("flash_attention", "example_mha_fwd_fp8")
    shape = (batch, heads, length, length, dim)

    def setup() -> Setup:
        inputs = module.make_inputs(*shape, device=machine.device)

        def ours() -> Any:
            kernel = module.flashattn_fp8(*shape, causal)
            return lambda: kernel(*inputs)

        def their() -> Any:
            q, k, v, factors = inputs
            rows = [x.transpose(1, 2).contiguous() for x in (q, k, v.transpose(2, 3))]
            descale = {f"{x}_descale": factors[..., i].contiguous() for i, x in enumerate("qkv")}
            interface = flash3_interface()

            def call() -> torch.Tensor:
                out = interface.flash_attn_func(*rows, causal=causal, **descale)
                return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

            return call

        q, k, v, factors = inputs
        plain = [x.float() * factors[..., i, None, None] for i, x in enumerate((q, k, v.transpose(2, 3)))]
        calls: dict[str, Prepare] = {"tilelang": ours, "fa3": their}
        return Setup(by_heads(*plain, causal), calls, module.LIMIT, {"fa3": 2 * module.LIMIT})

    mask = "causal" if causal else "full"
    work = example("flash_attention", "example_mha_fwd_bhsd").flops(*shape, causal)
    name = f"attention e4m3 B{batch} H{heads} S{length} D{dim} {mask}"
    return Case(name, setup, work, 0.0, AXIS, length, f"e4m3 D{dim} {mask}")


def backward(machine: Machine) -> list[Case]:
    """dQ, dK and dV from the output's gradient, everything that a backward pass needs included."""
    shapes = [(TOKENS // s, WIDTH // d, s, d) for d in (64, 128) for s in (4096, 1024, 16384)]
    shapes = machine.pick(shapes, [(1, 2, 128, 64)])
    return [_backward_case(machine, *shape, causal) for shape in shapes for causal in (True, False)]


def _backward_case(machine: Machine, batch: int, heads: int, length: int, dim: int, causal: bool) -> Case:
    shape = (batch, heads, length, length, dim)

    def setup() -> Setup:
        q, k, v, grad = (machine.randn(batch, length, heads, dim, dtype=torch.float16) for _ in range(4))

        def ours(deterministic: bool | None) -> Any:
            function = example("flash_attention", "example_gqa_bwd").GroupedQueryAttention
            given = [x.clone().requires_grad_() for x in (q, k, v)]
            output = function.apply(*given, causal, None, deterministic)
            return lambda: torch.autograd.grad(output, given, grad, retain_graph=True)

        def torch_by(backend: str) -> Any:
            from torch.nn.attention import SDPBackend, sdpa_kernel

            given = [x.transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]
            with sdpa_kernel(getattr(SDPBackend, backend)):
                output = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)
            over = grad.transpose(1, 2).contiguous()

            def call() -> list[torch.Tensor]:
                found = torch.autograd.grad(output, given, over, retain_graph=True)
                return [x.transpose(1, 2) for x in found]

            return call

        calls: dict[str, Prepare] = {
            "tilelang": lambda: ours(None),
            "tilelang fixed order": lambda: ours(True),
            "cudnn": lambda: torch_by("CUDNN_ATTENTION"),
            "flash": lambda: torch_by("FLASH_ATTENTION"),
        }
        return Setup(_gradients(q, k, v, grad, causal), calls, BACKWARD_LIMIT)

    mask = "causal" if causal else "full"
    work = 2.5 * example("flash_attention", "example_mha_fwd_bhsd").flops(*shape, causal)
    name = f"backward B{batch} H{heads} S{length} D{dim} {mask}"
    return Case(name, setup, work, 0.0, AXIS, length, f"D{dim} {mask}")


def _gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor, causal: bool
) -> list[torch.Tensor]:
    """float32 gradients one head at a time, (batch, length, heads, head dimension)."""
    reference = example("flash_attention", "example_mha_fwd_bhsd").reference
    out = [torch.empty_like(x, dtype=torch.float32) for x in (q, k, v)]
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            given = [x[b : b + 1, :, h].unsqueeze(1).float().requires_grad_() for x in (q, k, v)]
            result = reference(*given, causal)
            found = torch.autograd.grad(result, given, grad[b : b + 1, :, h].unsqueeze(1).float())
            for tensor, part in zip(out, found, strict=True):
                tensor[b, :, h] = part[0, 0]
    return out


DECODE_HEADS, DECODE_DIM, DECODE_LIMIT = (32, 8), 128, 3e-3  # of queries, of keys


def decode(machine: Machine) -> list[Case]:
    """One query a sequence against its cached keys and values, (batch, keys, heads of keys, head dimension)."""
    shapes = machine.pick([(1, 8192), (16, 8192), (64, 8192), (1, 131072), (4, 2048)], [(2, 256)])
    return [_decode_case(machine, *shape) for shape in shapes]


def _decode_case(machine: Machine, batch: int, keys: int) -> Case:
    heads, kv_heads = DECODE_HEADS
    dim, groups = DECODE_DIM, heads // kv_heads

    def setup() -> Setup:
        q = machine.randn(batch, heads, dim, dtype=torch.float16)
        k, v = (machine.randn(batch, keys, kv_heads, dim, dtype=torch.float16) for _ in range(2))
        lengths = torch.full((batch,), keys, dtype=torch.int32, device=machine.device)

        def ours() -> Any:
            module = example("flash_decoding", "example_gqa_decode")
            processors = torch.cuda.get_device_properties(0).multi_processor_count if q.is_cuda else 4
            splits = module.choose_splits(batch, heads, groups, keys, processors)
            workspaces = [q.new_empty(batch, heads, splits, *tail, dtype=torch.float32) for tail in ((), (dim,))]
            kernel = module.gqa_decode(batch, heads, groups, keys, dim, splits)
            return lambda: kernel(q, k, v, lengths, *workspaces)

        def torch_by(backend: str) -> Any:
            call = sdpa(backend, q[:, :, None], k.transpose(1, 2), v.transpose(1, 2), False, enable_gqa=True)
            return lambda: call()[:, :, 0]

        def their() -> Any:
            interface, low = flash3_interface(), [x.bfloat16() for x in (q[:, None], k, v)]

            def call() -> torch.Tensor:
                out = interface.flash_attn_func(*low, causal=False, num_splits=0, pack_gqa=True)
                return (out[0] if isinstance(out, tuple) else out)[:, 0]

            return call

        calls: dict[str, Prepare] = {
            "tilelang": ours,
            "cudnn": lambda: torch_by("CUDNN_ATTENTION"),
            "fa3 bf16": their,
            "flash": lambda: torch_by("FLASH_ATTENTION"),
        }
        arguments = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "keys": keys, "dim": dim, "dtype": "float16"}
        calls |= machine.public("gqa_decode", "gqa_decode", arguments, q, k, v)
        want = torch.stack([_one_query(q[b], k[b], v[b]) for b in range(batch)])
        return Setup(want, calls, DECODE_LIMIT, {"fa3 bf16": BF16_LIMIT})

    moved = 4.0 * batch * keys * kv_heads * dim
    name = f"decode B{batch} H{heads}/{kv_heads} keys {keys} D{dim}"
    return Case(name, setup, 0.0, moved, "batch", batch, f"keys {keys}")


def _one_query(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """float32 attention of q (heads, dim) over k and v (keys, heads of keys, dim)."""
    groups = q.shape[0] // k.shape[1]
    k, v = (x.float().repeat_interleave(groups, dim=1) for x in (k, v))
    weights = (torch.einsum("hd,khd->hk", q.float(), k) * q.shape[1] ** -0.5).softmax(-1)
    return torch.einsum("hk,khd->hd", weights, v)


def repeat(machine: Machine) -> list[Case]:
    """The same launch many times: a result that moves by one bit is a race."""
    size, length = (256, 128) if machine.small else (2048, 2048)

    def product() -> Setup:
        a, b = (machine.randn(size, size) for _ in range(2))

        def ours() -> Any:
            kernel = example("gemm", "example_gemm").matmul(size, size, size, "bfloat16", False, True)
            return _unmoved(lambda: kernel(a, b))

        return Setup(a.float() @ b.float().T, {"tilelang": ours})

    def attention() -> Setup:
        q, k, v = (machine.randn(2, 8, length, 64, dtype=torch.float16) for _ in range(3))

        def ours() -> Any:
            module = example("flash_attention", "example_mha_fwd_bhsd")
            kernel = module.flashattn(2, 8, length, length, 64, True)
            return _unmoved(lambda: kernel(q, k, v))

        return Setup(by_heads(q, k, v, True), {"tilelang": ours}, LIMIT)

    name = f"{REPEATS} launches"
    return [Case(f"gemm {size}^3, {name}", product), Case(f"attention S{length} D64, {name}", attention)]


def _unmoved(call: Any) -> Any:
    """The call, after `REPEATS` of it agreed. Raises AssertionError where they do not."""
    first = call().clone()
    differing = sum(not torch.equal(call(), first) for _ in range(REPEATS))
    if differing:
        raise AssertionError(f"{differing} of {REPEATS} launches differ from the first")
    return call
