# SPDX-License-Identifier: Apache-2.0
# The last copy of 16 bytes leaves the tensor by two elements.
import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((126,), "float32"), O: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=32):
        S = T.alloc_shared((128,), "float32")
        tx = T.get_thread_binding()
        T.ptx_cp_async(T.access_ptr(S[tx * 4], "w"), T.access_ptr(A[tx * 4], "r"), 16)
        T.ptx_commit_group()
        T.ptx_wait_group(0)
        T.sync_threads()
        O[tx] = S[tx]
