# SPDX-License-Identifier: Apache-2.0
"""Mamba-2, the outputs of the tokens of a chunk: from the state before the chunk, and from earlier tokens in it.

    out[m, p] = exp(dA_cumsum[m]) * sum over n: C[m, n] * prev_state[p, n]
              + sum over the tokens k <= m: cb[m, k] * exp(dA_cumsum[m] - dA_cumsum[k]) * dt[k] * x[k, p]
              + D * x[m, p]

for every batch, chunk and head; cb = C B^T of the chunk and C are shared by the heads of a group.

`python example_mamba_chunk_scan.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634


@tilelang.jit(out_idx=[7])
def chunk_scan_fwd(
    batch,
    seqlen,
    chunk_size,
    ngroups,
    nheads,
    headdim,
    dstate,
    block_M=64,
    block_N=64,
    block_K=64,
    num_stages=2,
    threads=128,
    dtype="float16",
):
    """A kernel (cb, x, dt, dA_cumsum, C, prev_states, D) -> Output (batch, seqlen, nheads, headdim); whole chunks.

    cb is (batch, chunks, ngroups, chunk_size, chunk_size), x (batch, seqlen, nheads, headdim), dt and dA_cumsum (batch,
    nheads, chunks, chunk_size), C (batch, seqlen, ngroups, dstate), prev_states (batch, chunks, nheads, headdim,
    dstate), D (nheads,).
    """
    accum_dtype = "float32"
    nchunks = seqlen // chunk_size
    columns = tilelang.cdiv(headdim, block_N)
    chunk_shape = (batch, nheads, nchunks, chunk_size)

    @T.prim_func
    def main(
        cb: T.Tensor((batch, nchunks, ngroups, chunk_size, chunk_size), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor(chunk_shape, dtype),
        dA_cumsum: T.Tensor(chunk_shape, dtype),
        C: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        prev_states: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
        D: T.Tensor((nheads,), dtype),
        Output: T.Tensor((batch, seqlen, nheads, headdim), dtype),
    ):
        with T.Kernel(nheads, T.ceildiv(chunk_size, block_M) * columns, batch * nchunks, threads=threads) as (
            bz,
            bx,
            by,
        ):
            acc_o = T.alloc_fragment((block_M, block_N), accum_dtype)
            cb_shared = T.alloc_shared((block_M, block_K), dtype)
            cb_local = T.alloc_fragment((block_M, block_K), dtype)
            dA_cs_k_shared = T.alloc_shared((block_K,), dtype)
            dA_cs_k_local = T.alloc_fragment((block_K,), accum_dtype)
            dA_cs_m_shared = T.alloc_shared((block_M,), dtype)
            dA_cs_m_local = T.alloc_fragment((block_M,), accum_dtype)
            dt_shared = T.alloc_shared((block_K,), dtype)
            dt_local = T.alloc_fragment((block_K,), accum_dtype)
            x_shared = T.alloc_shared((block_K, block_N), dtype)
            scale_m_local = T.alloc_fragment((block_M,), accum_dtype)
            C_shared = T.alloc_shared((block_M, dstate), dtype)
            prev_state_shared = T.alloc_shared((block_N, dstate), dtype)
            D_local = T.alloc_fragment((1,), accum_dtype)
            x_residual_shared = T.alloc_shared((block_M, block_N), dtype)
            x_residual_local = T.alloc_fragment((block_M, block_N), accum_dtype)

            batch_idx = by % batch
            chunk_idx = by // batch
            group = bz // (nheads // ngroups)
            m = bx // columns * block_M  # the block's first token in the chunk
            n = bx % columns * block_N
            row = chunk_idx * chunk_size + m

            D_local[0] = D[bz]
            T.copy(dA_cumsum[batch_idx, bz, chunk_idx, m : m + block_M], dA_cs_m_shared)
            T.copy(dA_cs_m_shared, dA_cs_m_local)
            for i in T.Parallel(block_M):
                scale_m_local[i] = T.exp2(dA_cs_m_local[i] * LOG2E)
            T.copy(C[batch_idx, row : row + block_M, group, 0:dstate], C_shared)
            T.copy(prev_states[batch_idx, chunk_idx, bz, n : n + block_N, 0:dstate], prev_state_shared)
            T.clear(acc_o)
            T.gemm(C_shared, prev_state_shared, acc_o, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                acc_o[i, j] *= scale_m_local[i]

            for k in T.Pipelined(T.ceildiv(m + block_M, block_K), num_stages=num_stages):
                T.copy(
                    cb[batch_idx, chunk_idx, group, m : m + block_M, k * block_K : (k + 1) * block_K],
                    cb_shared,
                )
                T.copy(cb_shared, cb_local)
                T.copy(dA_cumsum[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dA_cs_k_shared)
                T.copy(dA_cs_k_shared, dA_cs_k_local)
                T.copy(dt[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dt_shared)
                T.copy(dt_shared, dt_local)
                for i, j in T.Parallel(block_M, block_K):
                    weight = T.exp2(dA_cs_m_local[i] * LOG2E - dA_cs_k_local[j] * LOG2E) * dt_local[j]
                    cb_local[i, j] = T.if_then_else(m + i >= k * block_K + j, cb_local[i, j] * weight, 0)
                T.copy(
                    x[
                        batch_idx,
                        chunk_idx * chunk_size + k * block_K : chunk_idx * chunk_size + (k + 1) * block_K,
                        bz,
                        n : n + block_N,
                    ],
                    x_shared,
                )
                T.gemm(cb_local, x_shared, acc_o)

            T.copy(x[batch_idx, row : row + block_M, bz, n : n + block_N], x_residual_shared)
            T.copy(x_residual_shared, x_residual_local)
            for i, j in T.Parallel(block_M, block_N):
                acc_o[i, j] += x_residual_local[i, j] * D_local[0]
            T.copy(acc_o, Output[batch_idx, row : row + block_M, bz, n : n + block_N])

    return main


def make_inputs(
    batch: int,
    seqlen: int,
    chunk_size: int,
    ngroups: int,
    nheads: int,
    headdim: int,
    dstate: int,
    device: str = "cpu",
) -> tuple[torch.Tensor, ...]:
    """The kernel's tensors in float16; the decays of a chunk are negative and fall to about -1."""
    nchunks = seqlen // chunk_size
    chunk_shape = (batch, nheads, nchunks, chunk_size)
    cb = torch.randn(batch, nchunks, ngroups, chunk_size, chunk_size, device=device).half()
    x = torch.randn(batch, seqlen, nheads, headdim, device=device).half()
    dt = torch.rand(chunk_shape, device=device).half()
    dA_cumsum = (-torch.rand(chunk_shape, device=device) * 2 / chunk_size).cumsum(-1).half()
    C = torch.randn(batch, seqlen, ngroups, dstate, device=device).half()
    prev_states = torch.randn(batch, nchunks, nheads, headdim, dstate, device=device).half()
    return cb, x, dt, dA_cumsum, C, prev_states, torch.randn(nheads, device=device).half()


def reference(
    cb: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    C: torch.Tensor,
    prev_states: torch.Tensor,
    D: torch.Tensor,
) -> torch.Tensor:
    """The outputs, in the type of the inputs."""
    batch, nheads, nchunks, chunk_size = dt.shape
    share = nheads // C.shape[2]
    C = C.repeat_interleave(share, dim=2).unflatten(1, (nchunks, chunk_size))
    cb = cb.repeat_interleave(share, dim=2)
    tokens = x.unflatten(1, (nchunks, chunk_size))
    steps = (dA_cumsum[..., :, None] - dA_cumsum[..., None, :]).tril().exp().tril() * dt[..., None, :]
    inside = torch.einsum("bchmk,bhcmk,bckhp->bcmhp", cb, steps, tokens)
    before = torch.einsum("bcmhn,bchpn,bhcm->bcmhp", C, prev_states, dA_cumsum.exp())
    return (inside + before).flatten(1, 2) + x * D[:, None]


def check(kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...]) -> float:
    """Assert the outputs against float64; returns their relative error."""
    return assert_relative_error(kernel(*inputs), reference(*(x.double() for x in inputs)), 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {
        "batch": (8, 1),
        "seqlen": (4096, 128),
        "chunk_size": (256, 64),
        "ngroups": (1, 1),
        "nheads": (80, 2),
        "headdim": (64, 64),
        "dstate": (128, 32),
    }
    for name, (large, small) in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=large if on_gpu else small)
    args = vars(parser.parse_args())

    kernel = chunk_scan_fwd(**args)
    inputs = make_inputs(**args, device="cuda" if on_gpu else "cpu")
    print(f"relative error {check(kernel, inputs):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        tokens = args["batch"] * args["seqlen"] * args["nheads"] * args["headdim"]
        flops = tokens * (args["chunk_size"] + 2 * args["dstate"])
        print(f"{ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
