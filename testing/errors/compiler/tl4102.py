# SPDX-License-Identifier: Apache-2.0
# The layout needs 256 threads of 128.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        X = T.alloc_fragment((64, 64), "float32")
        T.annotate_layout({X: T.Fragment((64, 64), forward_fn=lambda i, j: (i * 4 + j // 16, j % 16))})
        T.copy(A[:64, :], X)


lower(main, "sm_90a")
