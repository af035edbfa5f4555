# SPDX-License-Identifier: Apache-2.0
# Values decide which threads run the tile code.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        X = T.alloc_fragment((64,), "float32")
        tx = T.get_thread_binding()
        if A[tx, 0] > 0.0:
            T.clear(X)
            T.copy(X, A[0, :])


lower(main, "sm_90a")
