# SPDX-License-Identifier: Apache-2.0
# wgmma has no double precision.
import tilelang.language as T
from tilelang.transform.pipeline import lower


@T.prim_func
def main(C: T.Tensor((64, 64), "float64")):
    with T.Kernel(1, threads=128):
        As = T.alloc_shared((64, 64), "float64")
        Bs = T.alloc_shared((64, 64), "float64")
        acc = T.alloc_fragment((64, 64), "float64")
        T.wgmma_gemm(As, Bs, acc)
        T.wait_wgmma(0)
        T.copy(acc, C)


lower(main, "sm_90a")
