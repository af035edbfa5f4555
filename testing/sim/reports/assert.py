# SPDX-License-Identifier: Apache-2.0
# An assertion of the program fails.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32):
        tx = T.get_thread_binding()
        T.device_assert(A[tx] > 2.0, "large numbers only")
