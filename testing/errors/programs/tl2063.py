# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.meta_class
class Counter:
    def __init__(self):
        self.count = T.alloc_local((1,), "int32")
        self.count[0] = 0


@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32) as b:
        Counter()
