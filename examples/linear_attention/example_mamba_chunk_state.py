# SPDX-License-Identifier: Apache-2.0
"""Mamba-2, the state that each chunk of tokens leaves behind by itself.

    state[p, n] = sum over the tokens l of the chunk:  x[l, p] * dt[l] * exp(dA_cumsum[last] - dA_cumsum[l]) * B[l, n]

for every batch, chunk and head; B is shared by the heads of a group. A product of x^T, scaled by token, with B.

`python example_mamba_chunk_state.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634


@tilelang.jit(out_idx=[4])
def chunk_state_fwd(
    batch,
    seqlen,
    chunk_size,
    ngroups,
    nheads,
    headdim,
    dstate,
    block_M=64,
    block_N=128,
    block_K=64,
    num_stages=2,
    threads=128,
    dtype="float16",
):
    """A kernel (B, x, dt, dA_cumsum) -> states (batch, chunks, nheads, headdim, dstate); seqlen is whole chunks.

    B is (batch, seqlen, ngroups, dstate), x (batch, seqlen, nheads, headdim), dt and dA_cumsum (batch, nheads, chunks,
    chunk_size).
    """
    accum_dtype = "float32"
    nchunks = seqlen // chunk_size
    columns = tilelang.cdiv(dstate, block_N)

    @T.prim_func
    def main(
        B: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), dtype),
        Output: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
    ):
        with T.Kernel(nheads, T.ceildiv(headdim, block_M) * columns, batch * nchunks, threads=threads) as (bz, bx, by):
            x_shared = T.alloc_shared((block_K, block_M), dtype)
            x_local = T.alloc_fragment((block_K, block_M), dtype)
            xt_local = T.alloc_fragment((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            dt_shared = T.alloc_shared((block_K,), dtype)
            dA_cumsum_shared = T.alloc_shared((block_K,), dtype)
            acc_o = T.alloc_fragment((block_M, block_N), accum_dtype)
            acc_o_shared = T.alloc_shared((block_M, block_N), dtype)
            scale = T.alloc_fragment((block_K,), accum_dtype)
            dA_cs_last = T.alloc_fragment((1,), accum_dtype)
            dA_cumsum_local = T.alloc_fragment((block_K,), accum_dtype)
            dt_local = T.alloc_fragment((block_K,), accum_dtype)

            batch_idx = by % batch
            chunk_idx = by // batch
            m_idx = bx // columns
            n_idx = bx % columns

            dA_cs_last[0] = dA_cumsum[batch_idx, bz, chunk_idx, chunk_size - 1]
            T.clear(acc_o)
            for k in T.Pipelined(T.ceildiv(chunk_size, block_K), num_stages=num_stages):
                row = chunk_idx * chunk_size + k * block_K
                T.copy(
                    x[batch_idx, row : row + block_K, bz, m_idx * block_M : (m_idx + 1) * block_M],
                    x_shared,
                )
                T.copy(dA_cumsum[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dA_cumsum_shared)
                T.copy(dt[batch_idx, bz, chunk_idx, k * block_K : (k + 1) * block_K], dt_shared)
                T.copy(dA_cumsum_shared, dA_cumsum_local)
                T.copy(dt_shared, dt_local)
                for i in T.Parallel(block_K):
                    scale[i] = T.exp2(dA_cs_last[0] * LOG2E - dA_cumsum_local[i] * LOG2E) * dt_local[i]
                T.copy(x_shared, x_local)
                for i, j in T.Parallel(block_M, block_K):
                    xt_local[i, j] = x_local[j, i] * scale[j]
                T.copy(
                    B[
                        batch_idx,
                        row : row + block_K,
                        bz // (nheads // ngroups),
                        n_idx * block_N : (n_idx + 1) * block_N,
                    ],
                    B_shared,
                )
                T.gemm(xt_local, B_shared, acc_o)
            T.copy(acc_o, acc_o_shared)
            T.copy(
                acc_o_shared,
                Output[
                    batch_idx,
                    chunk_idx,
                    bz,
                    m_idx * block_M : (m_idx + 1) * block_M,
                    n_idx * block_N : (n_idx + 1) * block_N,
                ],
            )

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
    """B, x, dt and dA_cumsum in float16; the decays of a chunk are negative and fall to about -1."""
    B = torch.randn(batch, seqlen, ngroups, dstate, device=device).half()
    x = torch.randn(batch, seqlen, nheads, headdim, device=device).half()
    shape = (batch, nheads, seqlen // chunk_size, chunk_size)
    dt = torch.rand(shape, device=device).half()
    dA_cumsum = (-torch.rand(shape, device=device) * 2 / chunk_size).cumsum(-1).half()
    return B, x, dt, dA_cumsum


def reference(B: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, dA_cumsum: torch.Tensor) -> torch.Tensor:
    """The states, in the type of the inputs."""
    batch, nheads, nchunks, chunk_size = dt.shape
    B = B.repeat_interleave(nheads // B.shape[2], dim=2).unflatten(1, (nchunks, chunk_size))
    x = x.unflatten(1, (nchunks, chunk_size))
    decay = (dA_cumsum[..., -1:] - dA_cumsum).exp() * dt
    return torch.einsum("bclhn,bhcl,bclhp->bchpn", B, decay, x)


def check(kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...]) -> float:
    """Assert the states against float64; returns their relative error."""
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

    kernel = chunk_state_fwd(**args)
    inputs = make_inputs(**args, device="cuda" if on_gpu else "cpu")
    print(f"relative error {check(kernel, inputs):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        flops = 2 * args["batch"] * args["seqlen"] * args["nheads"] * args["headdim"] * args["dstate"]
        print(f"{ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
