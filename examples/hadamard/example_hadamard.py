# SPDX-License-Identifier: Apache-2.0
"""The fast Walsh-Hadamard transform of every row, Y = X @ H, for rows of a power of two.

The transform is log2(N) steps; step s replaces the elements a, b whose indices differ in bit s by a + b and a - b.

* `hadamard_shared`: the row lies in shared memory, each step is a `T.Parallel` loop over the pairs, and the compiler
  places the barriers between the steps;
* `hadamard_warp`: a warp holds a row in registers; steps within a thread are plain code, those between threads exchange
  elements with `T.shfl_xor`.

`python example_hadamard.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


@tilelang.jit(out_idx=[1])
def hadamard_shared(M, N, threads=128, dtype="float32"):
    """A kernel X (M, N) -> X @ H."""
    steps = N.bit_length() - 1
    assert 1 << steps == N, "N must be a power of two"

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as row:
            S = T.alloc_shared((N,), "float32")
            T.copy(X[row, :], S)
            for step in range(steps):
                half = T.shift_left(1, step)
                for i in T.Parallel(N // 2):
                    low = i // half * (2 * half) + i % half
                    a = S[low]
                    b = S[low + half]
                    S[low] = a + b
                    S[low + half] = a - b
            T.copy(S, Y[row, :])

    return main


@tilelang.jit(out_idx=[1])
def hadamard_warp(M, N, rows=4, dtype="float32"):
    """The same kernel for N from 32 to some thousands; a block transforms `rows` rows."""
    lanes = 32
    own = N // lanes  # elements of a thread
    assert 1 << (N.bit_length() - 1) == N and own >= 1, "N must be a power of two, 32 or more"

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=(lanes, rows)) as block:
            values = T.alloc_local((own,), "float32")
            lane, row = T.get_thread_binding(0), block * rows + T.get_thread_binding(1)
            if row < M:
                for i in T.serial(own):
                    values[i] = X[row, lane * own + i]
            for step in T.unroll(own.bit_length() - 1):
                half = 1 << step
                for i in T.unroll(own // 2):
                    low = i // half * (2 * half) + i % half
                    a = values[low]
                    b = values[low + half]
                    values[low] = a + b
                    values[low + half] = a - b
            for step in T.unroll(5):
                # The lane with this bit clear takes the sum, its partner the difference.
                sign = T.if_then_else(T.bitwise_and(T.shift_right(lane, step), 1) == 0, T.float32(1), T.float32(-1))
                for i in T.unroll(own):
                    other = T.shfl_xor(values[i], T.shift_left(1, step))
                    values[i] = other + sign * values[i]
            if row < M:
                for i in T.serial(own):
                    Y[row, lane * own + i] = values[i]

    return main


def matrix(N: int, device: str = "cpu") -> torch.Tensor:
    """H by its definition: the sign of an entry is the parity of the bits that row and column share."""
    h = torch.ones(1, 1, dtype=torch.float64, device=device)
    while len(h) < N:
        h = torch.cat([torch.cat([h, h], dim=1), torch.cat([h, -h], dim=1)])
    return h


def check(kernel: tilelang.JITKernel, x: torch.Tensor) -> float:
    return assert_relative_error(kernel(x), x.double() @ matrix(x.shape[1], str(x.device)), 1e-6)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--M", type=int, default=65536 if on_gpu else 16)
    parser.add_argument("--N", type=int, default=1024 if on_gpu else 256)
    args = parser.parse_args()

    x = torch.randn(args.M, args.N, device="cuda" if on_gpu else "cpu")
    for name, factory in {"shared": hadamard_shared, "warp": hadamard_warp}.items():
        kernel = factory(args.M, args.N)
        print(f"{name:7s} relative error {check(kernel, x):.2e}", end="")
        if on_gpu:
            ms = tilelang.profiler.do_bench(lambda kernel=kernel: kernel(x))
            print(f" {ms:8.4f} ms {8e-6 * args.M * args.N / ms:8.1f} GB/s", end="")
        print()


if __name__ == "__main__":
    main()
