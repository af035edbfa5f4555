# SPDX-License-Identifier: Apache-2.0
# Two fixed layouts that one reduction would need to agree.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float32")
        X = T.alloc_fragment((64, 64), "float32")
        y = T.alloc_fragment((64,), "float32")
        T.annotate_layout({X: T.Fragment((64, 64), forward_fn=lambda i, j: (i * 2 + j // 32, j % 32))})
        T.annotate_layout({y: T.Fragment((64,), forward_fn=lambda i: (i, 0))})
        T.copy(A[:64, :], X)
        T.reduce_sum(X, y, dim=1)


lower(main, "sm_90a")
