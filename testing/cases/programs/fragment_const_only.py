# SPDX-License-Identifier: Apache-2.0
"""Fragments that are only ever given constants (nothing to infer a layout from).

Guards against: compiler crash ("layout ... can not be inferred").
Right behaviour: any legal layout; out = const, count = number of passes.
"""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-2, -1])
def make(M, N):
    @T.prim_func
    def main(O: T.Tensor((M, N), "float32"), C: T.Tensor((M,), "int32")):
        with T.Kernel(1, threads=128):
            unused = T.alloc_fragment((M,), "float32")
            o = T.alloc_fragment((M, N), "float32")
            c = T.alloc_fragment((M,), "int32")
            T.fill(unused, -T.infinity("float32"))
            T.fill(o, 2.5)
            T.clear(c)
            for _ in T.serial(3):
                for i in T.Parallel(M):
                    c[i] += 1
            T.copy(o, O)
            T.copy(c, C)

    return main


PROGRAMS = [(make, (64, 64)), (make, (33, 5))]


def run(device="cuda"):
    for f, args in PROGRAMS:
        o, c = f(*args)()
        assert torch.equal(o, torch.full(args, 2.5, device=device))
        assert torch.equal(c, torch.full((args[0],), 3, dtype=torch.int32, device=device))
