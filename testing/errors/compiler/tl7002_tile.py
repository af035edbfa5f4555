# SPDX-License-Identifier: Apache-2.0
# One with a tile op.
import numpy as np

import tilelang.language as T
from tilelang.sim import simulate


@T.prim_func
def main(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        T.clear(A)


simulate(main, [np.zeros(64, np.float32)])
