# SPDX-License-Identifier: Apache-2.0
# Two warpgroups ask for more registers than are left by the third.
from damage import static

import tilelang.language as T


@T.prim_func
def main(O: T.Tensor((384,), "float32")):
    with T.Kernel(1, threads=384):
        tx = T.get_thread_binding()
        if tx >= 256:
            T.dec_max_nreg(24)
        else:
            T.inc_max_nreg(240)
        O[tx] = 1.0


def damage(device):
    return static(device, "setmaxnreg_dec", "regs", 160)
