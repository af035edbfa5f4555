# SPDX-License-Identifier: Apache-2.0
# An argument by a name that no parameter has.
import numpy as np

import tilelang.language as T
from tilelang.sim import simulate
from tilelang.transform.pipeline import lower


@T.prim_func
def main(Input: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        T.clear(Input)


x = np.zeros(64, np.float32)
simulate(lower(main, "sm_90a"), {"Input": x, "input": x})
