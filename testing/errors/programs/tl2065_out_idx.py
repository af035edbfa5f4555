# SPDX-License-Identifier: Apache-2.0
import tilelang
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64,), "float32")):
    with T.Kernel(4, threads=64) as b:
        for i, j in T.Parallel(16, 64):
            T.atomic_add(O[j], A[b * 16 + i, j])


tilelang.compile(main, out_idx=[1], target="cpu")
