# SPDX-License-Identifier: Apache-2.0
# An option that does not exist.
import numpy as np

import tilelang.language as T
from tilelang.sim import simulate
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((256,), "float32")):
    with T.Kernel(4, threads=64) as bx:
        for i in T.Parallel(64):
            A[bx * 64 + i] = 0


simulate(lower(main, "sm_90a"), [np.zeros(256, np.float32)], strict=True)
