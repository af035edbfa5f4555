# SPDX-License-Identifier: Apache-2.0
# The kernel aborts itself.
import tilelang.language as T
from tilelang.ir.device_ops import device_op
from tilelang.tir_builder.builder import Builder


def abort():
    builder = Builder.current("abort")
    builder.emit(device_op("trap", span=builder.span))


@T.prim_func
def main(A: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        if A[tx] < 2.0:
            abort()
