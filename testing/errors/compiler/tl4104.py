# SPDX-License-Identifier: Apache-2.0
# A view lies where its base does; the product needs its result elsewhere.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((64, 64), "float16"), O: T.Tensor((4096,), "float32")):
    with T.Kernel(1, threads=128):
        As = T.alloc_shared((64, 64), "float16")
        X = T.alloc_fragment((4096,), "float32")
        acc = T.view(X, (64, 64))
        T.annotate_layout({X: T.Fragment((4096,), forward_fn=lambda i: (i % 128, i // 128))})
        T.copy(A, As)
        T.gemm(As, As, acc, clear_accum=True)
        T.copy(X, O)


lower(main, "sm_90a")
