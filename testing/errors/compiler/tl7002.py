# SPDX-License-Identifier: Apache-2.0
# A tile program that was not lowered.
import numpy as np

import tilelang.language as T
from tilelang.sim import simulate


@T.prim_func
def main(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = 1.0


simulate(main, [np.zeros(64, np.float32)])
