# SPDX-License-Identifier: Apache-2.0
# A policy that does not exist.
import numpy as np

import tilelang.language as T
from tilelang.sim import simulate
from tilelang.transform.pipeline import lower


@T.prim_func
def main(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        T.clear(A)


simulate(lower(main, "sm_90a"), [np.zeros(64, np.float32)], policy="rand")
