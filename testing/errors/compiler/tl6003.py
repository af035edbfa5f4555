# SPDX-License-Identifier: Apache-2.0
# A program for a newer device.
import tilelang.language as T
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.support.options import CompileOptions
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        T.fence_proxy_async()


lower_to_cuda(lower(main, "sm_90a", CompileOptions(overlap_launches=False)), ARCHS["sm_80"])
