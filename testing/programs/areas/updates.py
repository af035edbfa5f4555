# SPDX-License-Identifier: Apache-2.0
"""Statements outside of T.Parallel that read and write one element of memory: it changes once, however many threads."""

from __future__ import annotations

import torch
from witness import EVERYWHERE, changed, ints, out, program, randn, run

import tilelang.language as T


@program(devices=EVERYWHERE, threads=(32, 100, 256))
def element_of_a_tensor(threads):
    """An element of a tensor changes once, in loops and in branches on data of the block."""

    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), O: T.Tensor((3, 4), "int32")):
        with T.Kernel(4, threads=threads) as b:
            O[0, b] = O[0, b] * 2 + A[b]
            for i in T.serial(5):
                O[1, b] += i
            if A[b] > 0:
                O[2, b] -= A[b]
            else:
                O[2, b] += 1
            O[2, b] = T.max(O[2, b], O[1, b])

    a, o = ints(4), ints(3, 4)
    want = torch.stack([o[0] * 2 + a, o[1] + 10, torch.where(a > 0, o[2] - a, o[2] + 1)])
    want[2] = torch.maximum(want[2], want[1])
    return run(main, a, changed(o, want))


@program(devices=EVERYWHERE, scope=("shared", "shared.dyn"))
def element_of_a_tile(scope):
    """Each element of a shared tile takes up what its neighbour has become."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32"), P: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64,), "float32", scope=scope)
            T.copy(A, S)
            for i in T.serial(1, 64):
                S[i] += S[i - 1] * 0.5
            T.copy(S, O)
            for i in T.serial(63):
                S[62 - i] = S[62 - i] + S[63 - i] * 0.5
            T.copy(S, P)

    a = randn(64)
    up = a.clone()
    for i in range(1, 64):
        up[i] += up[i - 1] * 0.5
    down = up.clone()
    for i in reversed(range(63)):
        down[i] += down[i + 1] * 0.5
    return run(main, a, out(up), out(down), tolerance=1e-5)


@program(devices=EVERYWHERE)
def value_of_a_fragment_that_some_threads_hold():
    """The value comes from registers that the sums of rows have spread over threads."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float32")
            total = T.alloc_shared((64,), "float32")
            r = T.alloc_fragment((64, 64), "float32")
            rows = T.alloc_fragment((64,), "float32")
            T.copy(A, S)
            T.copy(S, r)
            T.reduce_sum(r, rows, dim=1)
            T.clear(total)
            for i in T.serial(64):
                total[i] += rows[i]
                total[i // 2] = total[i // 2] + rows[i]
            T.copy(total, O)

    a = ints(64, 64).float()
    rows, want = a.sum(1), torch.zeros(64)
    for i in range(64):
        want[i] += rows[i]
        want[i // 2] += rows[i]
    return run(main, a, out(want))


@program(devices=EVERYWHERE)
def in_branches_of_threads():
    """A group of threads changes an element once as well."""

    @T.prim_func
    def main(O: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((2,), "int32")
            tx = T.get_thread_binding()
            S[0] = 7
            S[1] = 7
            with T.ws(0):
                S[0] += 1
                O[0] = S[0]
            with T.ws(1):
                S[1] += 2
                O[1] = S[1]
            if tx < 20:
                O[2] += 1
            if tx >= 64:
                O[3] += 1
            else:
                O[4] += 1
            if tx == 37:
                O[5] += tx

    return run(main, changed(torch.zeros(6).int(), torch.tensor([8, 9, 1, 1, 1, 37]).int()))


@program(devices=EVERYWHERE)
def beside_a_pipelined_product():
    """What counts the steps of a pipeline counts each of them once."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((256, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
        n: T.Tensor((2,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 128), "float16")
            count = T.alloc_shared((1,), "int32")
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            count[0] = 0
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], As)
                T.copy(B[k * 64, 0], Bs)
                T.gemm(As, Bs, acc)
                count[0] += k
                n[1] += 1
            T.copy(acc, C)
            n[0] += count[0]

    a, b, n = ints(128, 256).half(), ints(256, 128).half(), torch.tensor([3, 4]).int()
    return run(main, a, b, out(a.float() @ b.float()), changed(n, n + torch.tensor([6, 4]).int()))


@program(devices=EVERYWHERE)
def loops_of_vectors_and_while():
    """Loops of vectors, unrolled ones and those that ask what they change; a view is the memory that it looks at."""

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), O: T.Tensor((8,), "int32"), n: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8,), "int32")
            V = T.view(S, (2, 4), "int32")
            T.copy(A, S)
            for i in T.vectorized(8):
                S[i] = S[i] + i
            for i in T.unroll(4):
                V[0, i] += S[i + 4]
                S[i + 4] += V[0, i]
            while n[0] < 5:
                n[0] += 2
            for i in T.vectorized(8):
                O[i] = O[i] * 3
            for i in T.serial(8):
                O[i] += S[i]

    a, o = ints(8), ints(8)
    s = a + torch.arange(8).int()
    s[:4] += s[4:]
    s[4:] += s[:4]
    return run(main, a, changed(o, o * 3 + s), changed(torch.zeros(1).int(), torch.full((1,), 6).int()))
