# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((8,), "float32"), n: T.int32):
    with T.Kernel(1, threads=32) as b:
        r = T.alloc_reducer((8,), "float32", op="sum")
        T.reducer_init(r)
        for i in T.Parallel(8):
            T.reducer_update(r[i // 2], A[i])
