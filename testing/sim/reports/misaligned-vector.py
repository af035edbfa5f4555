# SPDX-License-Identifier: Apache-2.0
# A vector of four elements that starts at the second.
from tvm import ir, tirx

import tilelang.language as T
from tilelang.ir.walk import rewrite


@T.prim_func
def main(A: T.Tensor((132,), "float32"), O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        for v in T.vectorized(4):
            O[tx * 4 + v] = A[tx * 4 + v]


def damage(device):
    def one(load):
        return tirx.BufferLoad(load.source, [load.indices[0] + 1]) if load.source.name == "A" else load

    return device.with_body(rewrite(device.body, {ir.TensorLoad: one}))
