# SPDX-License-Identifier: Apache-2.0
"""Causal linear attention with a decay a head (retention), by chunks; forward and gradients, as a torch function.

    o[i] = scale * sum over j <= i: g^(i - j) * (q[i] . k[j]) * v[j]        g = 2^decay of the head, 1: no forgetting

A chunk needs of the tokens before it only the state h = sum g^(..) k v^T, a matrix. A block of the forward kernel owns
some columns of V and walks over the chunks: O = ((Q K^T) * mask) V + Q h, then h = g^chunk h + K^T V. The gradients of
Q walk the same way, those of K and V backwards with a state of the tokens behind, dh = sum g^(..) q do^T.

`python example_linear_attn.py` checks outputs and gradients and, on a GPU, times them.
"""

from __future__ import annotations

import argparse
import math

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@tilelang.jit(out_idx=[4, 5])
def linear_attn_fwd(batch, seq, heads, dim_k, dim_v, chunk=64, block_V=64, num_stages=2, threads=128, dtype="bfloat16"):
    """A kernel (Q, K, V, decay) -> (O (batch, seq, heads, dim_v), final state (batch, heads, dim_k, dim_v) float32).

    Q and K are (batch, seq, heads, dim_k), V (batch, seq, heads, dim_v), decay (heads,) float32, at most 0.
    """
    scale = 1.0 / math.sqrt(dim_k)
    accum_dtype = "float32"
    k_shape, v_shape = (batch, seq, heads, dim_k), (batch, seq, heads, dim_v)

    @T.prim_func
    def main(
        Q: T.Tensor(k_shape, dtype),
        K: T.Tensor(k_shape, dtype),
        V: T.Tensor(v_shape, dtype),
        decay: T.Tensor((heads,), accum_dtype),
        O: T.Tensor(v_shape, dtype),
        final_state: T.Tensor((batch, heads, dim_k, dim_v), accum_dtype),
    ):
        with T.Kernel(T.ceildiv(dim_v, block_V), heads, batch, threads=threads) as (bx, by, bz):
            q = T.alloc_shared((chunk, dim_k), dtype)
            k = T.alloc_shared((chunk, dim_k), dtype)
            v = T.alloc_shared((chunk, block_V), dtype)
            v_decayed = T.alloc_shared((chunk, block_V), dtype)
            h_shared = T.alloc_shared((dim_k, block_V), dtype)
            s_shared = T.alloc_shared((chunk, chunk), dtype)
            s = T.alloc_fragment((chunk, chunk), accum_dtype)
            o = T.alloc_fragment((chunk, block_V), accum_dtype)
            h = T.alloc_fragment((dim_k, block_V), accum_dtype)
            g = decay[by]

            T.clear(h)
            for c in T.Pipelined(T.ceildiv(seq, chunk), num_stages=num_stages):
                count = T.min(seq - c * chunk, chunk)  # tokens of the chunk
                T.copy(Q[bz, c * chunk : (c + 1) * chunk, by, :], q)
                T.copy(K[bz, c * chunk : (c + 1) * chunk, by, :], k)
                T.copy(V[bz, c * chunk : (c + 1) * chunk, by, bx * block_V : (bx + 1) * block_V], v)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    s_shared[i, j] = T.if_then_else(i >= j, s[i, j] * scale * T.exp2(g * (i - j)), 0)
                T.copy(h, h_shared)
                T.gemm(q, h_shared, o, clear_accum=True)
                for i, j in T.Parallel(chunk, block_V):
                    o[i, j] *= scale * T.exp2(g * (i + 1))
                T.gemm(s_shared, v, o)
                T.copy(o, O[bz, c * chunk : (c + 1) * chunk, by, bx * block_V : (bx + 1) * block_V])
                for i, j in T.Parallel(chunk, block_V):
                    v_decayed[i, j] = v[i, j] * T.exp2(g * T.max(count - 1 - i, 0))
                for i, j in T.Parallel(dim_k, block_V):
                    h[i, j] *= T.exp2(g * count)
                T.gemm(k, v_decayed, h, transpose_A=True)
            T.copy(h, final_state[bz, by, :, bx * block_V : (bx + 1) * block_V])

    return main


@tilelang.jit(out_idx=[5, 6])
def linear_attn_bwd_qk(
    batch, seq, heads, dim_k, dim_v, chunk=64, block_K=64, num_stages=2, threads=128, dtype="bfloat16"
):
    """A kernel (Q, K, V, dO, decay) -> (dQ, dK). A block owns block_K columns of Q and K."""
    scale = 1.0 / math.sqrt(dim_k)
    accum_dtype = "float32"
    k_shape, v_shape = (batch, seq, heads, dim_k), (batch, seq, heads, dim_v)
    chunks = tilelang.cdiv(seq, chunk)

    @T.prim_func
    def main(
        Q: T.Tensor(k_shape, dtype),
        K: T.Tensor(k_shape, dtype),
        V: T.Tensor(v_shape, dtype),
        dO: T.Tensor(v_shape, dtype),
        decay: T.Tensor((heads,), accum_dtype),
        dQ: T.Tensor(k_shape, dtype),
        dK: T.Tensor(k_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(dim_k, block_K), heads, batch, threads=threads) as (bx, by, bz):
            q = T.alloc_shared((chunk, block_K), dtype)
            k = T.alloc_shared((chunk, block_K), dtype)
            v = T.alloc_shared((chunk, dim_v), dtype)
            do = T.alloc_shared((chunk, dim_v), dtype)
            decayed = T.alloc_shared((chunk, block_K), dtype)
            ds_shared = T.alloc_shared((chunk, chunk), dtype)
            h_shared = T.alloc_shared((block_K, dim_v), dtype)
            ds = T.alloc_fragment((chunk, chunk), accum_dtype)
            dq = T.alloc_fragment((chunk, block_K), accum_dtype)
            dk = T.alloc_fragment((chunk, block_K), accum_dtype)
            h = T.alloc_fragment((block_K, dim_v), accum_dtype)
            g = decay[by]

            T.clear(h)
            for c in T.Pipelined(chunks, num_stages=num_stages):
                count = T.min(seq - c * chunk, chunk)  # tokens of the chunk
                T.copy(K[bz, c * chunk : (c + 1) * chunk, by, bx * block_K : (bx + 1) * block_K], k)
                T.copy(V[bz, c * chunk : (c + 1) * chunk, by, :], v)
                T.copy(dO[bz, c * chunk : (c + 1) * chunk, by, :], do)
                T.gemm(do, v, ds, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    ds_shared[i, j] = T.if_then_else(i >= j, ds[i, j] * scale * T.exp2(g * (i - j)), 0)
                T.copy(h, h_shared)
                T.gemm(do, h_shared, dq, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, block_K):
                    dq[i, j] *= scale * T.exp2(g * (i + 1))
                T.gemm(ds_shared, k, dq)
                T.copy(dq, dQ[bz, c * chunk : (c + 1) * chunk, by, bx * block_K : (bx + 1) * block_K])
                for i, j in T.Parallel(chunk, block_K):
                    decayed[i, j] = k[i, j] * T.exp2(g * T.max(count - 1 - i, 0))
                for i, j in T.Parallel(block_K, dim_v):
                    h[i, j] *= T.exp2(g * count)
                T.gemm(decayed, v, h, transpose_A=True)

            T.clear(h)  # from here on of the tokens behind
            for n in T.Pipelined(chunks, num_stages=num_stages):
                c = chunks - 1 - n
                count = T.min(seq - c * chunk, chunk)
                T.copy(Q[bz, c * chunk : (c + 1) * chunk, by, bx * block_K : (bx + 1) * block_K], q)
                T.copy(V[bz, c * chunk : (c + 1) * chunk, by, :], v)
                T.copy(dO[bz, c * chunk : (c + 1) * chunk, by, :], do)
                T.gemm(v, do, ds, transpose_B=True, clear_accum=True)  # transposed: keys by queries
                for i, j in T.Parallel(chunk, chunk):
                    ds_shared[i, j] = T.if_then_else(j >= i, ds[i, j] * scale * T.exp2(g * (j - i)), 0)
                T.copy(h, h_shared)
                T.gemm(v, h_shared, dk, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, block_K):
                    dk[i, j] *= scale * T.exp2(g * T.max(count - 1 - i, 0))
                T.gemm(ds_shared, q, dk)
                T.copy(dk, dK[bz, c * chunk : (c + 1) * chunk, by, bx * block_K : (bx + 1) * block_K])
                for i, j in T.Parallel(chunk, block_K):
                    decayed[i, j] = q[i, j] * T.exp2(g * (i + 1))
                for i, j in T.Parallel(block_K, dim_v):
                    h[i, j] *= T.exp2(g * count)
                T.gemm(decayed, do, h, transpose_A=True)

    return main


@tilelang.jit(out_idx=[4])
def linear_attn_bwd_v(
    batch, seq, heads, dim_k, dim_v, chunk=64, block_V=64, num_stages=2, threads=128, dtype="bfloat16"
):
    """A kernel (Q, K, dO, decay) -> dV. A block owns block_V columns of V."""
    scale = 1.0 / math.sqrt(dim_k)
    accum_dtype = "float32"
    k_shape, v_shape = (batch, seq, heads, dim_k), (batch, seq, heads, dim_v)
    chunks = tilelang.cdiv(seq, chunk)

    @T.prim_func
    def main(
        Q: T.Tensor(k_shape, dtype),
        K: T.Tensor(k_shape, dtype),
        dO: T.Tensor(v_shape, dtype),
        decay: T.Tensor((heads,), accum_dtype),
        dV: T.Tensor(v_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(dim_v, block_V), heads, batch, threads=threads) as (bx, by, bz):
            q = T.alloc_shared((chunk, dim_k), dtype)
            k = T.alloc_shared((chunk, dim_k), dtype)
            do = T.alloc_shared((chunk, block_V), dtype)
            do_decayed = T.alloc_shared((chunk, block_V), dtype)
            s_shared = T.alloc_shared((chunk, chunk), dtype)
            h_shared = T.alloc_shared((dim_k, block_V), dtype)
            s = T.alloc_fragment((chunk, chunk), accum_dtype)  # transposed: keys by queries
            dv = T.alloc_fragment((chunk, block_V), accum_dtype)
            h = T.alloc_fragment((dim_k, block_V), accum_dtype)
            g = decay[by]

            T.clear(h)
            for n in T.Pipelined(chunks, num_stages=num_stages):
                c = chunks - 1 - n
                count = T.min(seq - c * chunk, chunk)  # tokens of the chunk
                T.copy(Q[bz, c * chunk : (c + 1) * chunk, by, :], q)
                T.copy(K[bz, c * chunk : (c + 1) * chunk, by, :], k)
                T.copy(dO[bz, c * chunk : (c + 1) * chunk, by, bx * block_V : (bx + 1) * block_V], do)
                T.gemm(k, q, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    s_shared[i, j] = T.if_then_else(j >= i, s[i, j] * scale * T.exp2(g * (j - i)), 0)
                T.copy(h, h_shared)
                T.gemm(k, h_shared, dv, clear_accum=True)
                for i, j in T.Parallel(chunk, block_V):
                    dv[i, j] *= scale * T.exp2(g * T.max(count - 1 - i, 0))
                T.gemm(s_shared, do, dv)
                T.copy(dv, dV[bz, c * chunk : (c + 1) * chunk, by, bx * block_V : (bx + 1) * block_V])
                for i, j in T.Parallel(chunk, block_V):
                    do_decayed[i, j] = do[i, j] * T.exp2(g * (i + 1))
                for i, j in T.Parallel(dim_k, block_V):
                    h[i, j] *= T.exp2(g * count)
                T.gemm(q, do_decayed, h, transpose_A=True)

    return main


class LinearAttention(torch.autograd.Function):
    """Linear attention of Q, K (batch, seq, heads, dim_k) and V (batch, seq, heads, dim_v); decay has no gradient."""

    @staticmethod
    def forward(ctx, q, k, v, decay, target=None):
        ctx.save_for_backward(q, k, v, decay)
        ctx.size, ctx.options = (*q.shape[:3], q.shape[3], v.shape[3]), {"dtype": str(q.dtype).removeprefix("torch.")}
        ctx.target = target
        return linear_attn_fwd.with_options(target=target)(*ctx.size, **ctx.options)(q, k, v, decay)[0]

    @staticmethod
    def backward(ctx, grad):
        q, k, v, decay = ctx.saved_tensors
        grad = grad.contiguous()
        dq, dk = linear_attn_bwd_qk.with_options(target=ctx.target)(*ctx.size, **ctx.options)(q, k, v, grad, decay)
        dv = linear_attn_bwd_v.with_options(target=ctx.target)(*ctx.size, **ctx.options)(q, k, grad, decay)
        return dq, dk, dv, None, None


def make_inputs(
    batch: int, seq: int, heads: int, dim_k: int, dim_v: int, forgetful: bool = True, device: str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """Q, K, V in bfloat16 and the decays of RetNet, 2^decay = 1 - 2^(-5 - head), or zeros."""
    q, k, v = (torch.randn(batch, seq, heads, d, device=device).bfloat16() for d in (dim_k, dim_k, dim_v))
    decay = torch.log2(1 - torch.exp2(-5.0 - torch.arange(heads, device=device)))
    return q, k, v, decay if forgetful else torch.zeros_like(decay)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and final state, in the type of the inputs, without chunks."""
    seq, position = q.shape[1], torch.arange(q.shape[1], device=q.device)
    weights = torch.exp2(decay[:, None, None] * (position[:, None] - position).clamp(min=0)).tril()
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * weights.to(q.dtype) / math.sqrt(q.shape[-1])
    ages = torch.exp2(decay[:, None] * (seq - 1 - position)).to(q.dtype)
    state = torch.einsum("bjhd,hj,bjhe->bhde", k, ages, v)
    return torch.einsum("bhij,bjhe->bihe", scores, v), state


def check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, target: str | None = None) -> list:
    """Assert outputs, state and gradients against float32; returns the relative errors of O, state, dQ, dK, dV."""
    size = (*q.shape[:3], q.shape[3], v.shape[3])
    _, state = linear_attn_fwd.with_options(target=target)(*size)(q, k, v, decay)
    grad = torch.randn_like(v)
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    output = LinearAttention.apply(*given, decay, target)
    output.backward(grad)
    wanted = [x.detach().float().requires_grad_() for x in (q, k, v)]
    expected, expected_state = reference(*wanted, decay)
    expected.backward(grad.float())
    pairs = [(output, expected), (state, expected_state), *((a.grad, b.grad) for a, b in zip(given, wanted))]
    return [assert_relative_error(a, b, 8e-3) for a, b in pairs]


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"batch": (8, 1), "seq": (4096, 150), "heads": (32, 2), "dim_k": (128, 64), "dim_v": (128, 64)}
    for name, (large, small) in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=large if on_gpu else small)
    parser.add_argument("--no-decay", action="store_true", help="plain linear attention")
    args = parser.parse_args()

    size = (args.batch, args.seq, args.heads, args.dim_k, args.dim_v)
    device = "cuda" if on_gpu else "cpu"
    checked = make_inputs(1, min(args.seq, 1024), *size[2:], not args.no_decay, device)
    print(f"relative errors {', '.join(f'{e:.2e}' for e in check(*checked))}")
    if on_gpu:
        q, k, v, decay = make_inputs(*size, not args.no_decay, device)
        grad = torch.randn_like(v)
        # Products of a chunk: scores and values, state and its use.
        flops = 4 * args.batch * args.seq * args.heads * (32 * (args.dim_k + args.dim_v) + args.dim_k * args.dim_v)
        forward = linear_attn_fwd(*size)
        ms = tilelang.profiler.do_bench(lambda: forward(q, k, v, decay))
        print(f"forward  {ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")
        of_qk, of_v = linear_attn_bwd_qk(*size), linear_attn_bwd_v(*size)
        ms = tilelang.profiler.do_bench(lambda: (of_qk(q, k, v, grad, decay), of_v(q, k, grad, decay)))
        print(f"backward {ms:8.4f} ms {3e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
