# SPDX-License-Identifier: Apache-2.0
"""What reaches the machine by name: foreign functions, CUDA text, clusters, hints, printing, dependent launches."""

from __future__ import annotations

import torch
from witness import ON_DEVICES, ON_HOPPER, ints, out, program, randn, run

import tilelang.language as T

ON_A_GPU = ()  # code that only CUDA's compiler can read


@program(devices=ON_DEVICES)
def functions_of_the_library():
    """T.call_extern names a function of CUDA's library."""

    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), O: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(40):
                O[i] = T.call_extern("float32", "fabsf", A[i]) + T.call_extern("fabsf", -1.0, dtype=T.float)

    a = randn(40)
    return run(main, a, out(a.abs() + 1))


@program(devices=ON_A_GPU)
def functions_of_the_program():
    """T.import_source brings device functions of the user's own."""

    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), O: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=64):
            T.import_source("__device__ float twice_and_one(float x) { return 2.0f * x + 1.0f; }")
            for i in T.Parallel(40):
                O[i] = T.call_extern("float32", "twice_and_one", A[i])

    a = randn(40)
    return run(main, a, out(a * 2 + 1))


@program(devices=ON_A_GPU)
def pointers_to_functions_of_the_program():
    """Buffers, elements and slices are passed as addresses, in every spelling."""
    code = """
    __device__ float add(float const* x, float const* y, float* z) { z[0] = x[0] + y[0]; return z[0]; }
    """

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64, prelude=code):
            t = T.get_thread_binding()
            a = T.alloc_local((1,), "float32")
            S = T.alloc_shared((64,), "float32")
            a[0] = A[t]
            T.copy(B, S)
            T.call_extern(
                "add", T.address_of(a[0]), T.access_ptr(S[t : t + 1], "r"), T.access_ptr(a, "w"), dtype="float32"
            )
            T.call_extern("handle", "add", a, S[t : t + 1], T.access_ptr(O[t], "w"))

    a, b = randn(64), randn(64)
    return run(main, a, b, out(a + b + b))


@program()
def printing_changes_nothing():
    """T.print of numbers, of tiles in shared memory and registers, and in parallel loops."""

    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), O: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((4,), "float32")
            f = T.alloc_fragment((4,), "float32")
            T.copy(A, S)
            T.copy(S, f)
            T.print(A[0], msg="first")
            T.print(S)
            T.print(f, msg="registers")
            T.print("a line")
            for i in T.Parallel(4):
                T.print(f[i])
            T.copy(f, O)

    a = randn(4)
    return run(main, a, out(a))


@program()
def hints_of_every_kind():
    """Blocks per multiprocessor, cache ratios, restrict, registers: all accepted, none changes a value."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.annotate_min_blocks_per_sm(2)
            T.annotate_l2_hit_ratio({A: 0.5})
            T.annotate_restrict_buffers(A, B)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(240)
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], As[:, 0:32])
                T.copy(B[k * 32, 0], Bs[0:32, :])
                T.gemm(As[:, 0:32], Bs[0:32, :], acc)
            T.copy(acc, C)

    a, b = ints(64, 64, dtype="float16"), ints(64, 64, dtype="float16")
    return run(main, a, b, out(a.float() @ b.float()))


@program(devices=ON_HOPPER)
def launches_that_overlap():
    """Programmatic dependent launch: wait for the kernel before, let the next one start."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.pdl_sync()
            for i in T.Parallel(64):
                O[i] = A[i] * 3.0
            T.pdl_trigger()

    a = randn(64)
    return run(main, a, out(a * 3))


@program(devices=ON_HOPPER)
def blocks_of_a_cluster():
    """Two blocks know their rank and meet."""

    @T.prim_func
    def main(A: T.Tensor((4, 64), "int32"), O: T.Tensor((4, 64), "int32")):
        with T.ClusterKernel(4, cluster_dims=(2, 1, 1), threads=64) as b:
            for i in T.Parallel(64):
                O[b, i] = A[b, i] + T.block_rank_in_cluster() * 1000
            T.cluster_sync()

    a = ints(4, 64)
    return run(main, a, out(a + torch.tensor([0, 1, 0, 1]).int().view(4, 1) * 1000))


@program(groups=((0,), (1,), (0, 2)))
def groups_of_warpgroups(groups):
    """T.ws limits a body to warpgroups; tile statements in it are laid out over them."""

    @T.prim_func
    def main(A: T.Tensor((384,), "float32"), O: T.Tensor((384,), "float32")):
        with T.Kernel(1, threads=384):
            tx = T.get_thread_binding()
            O[tx] = 0.0
            T.sync_threads()
            with T.ws(*groups):
                O[tx] = A[tx] * 2.0

    a, want = randn(384), torch.zeros(384)
    for g in groups:
        want[g * 128 : g * 128 + 128] = a[g * 128 : g * 128 + 128] * 2
    return run(main, a, out(want))


@program(devices=ON_DEVICES)
def one_thread_for_each_group():
    """T.shuffle_elect picks one thread of a number of threads."""

    @T.prim_func
    def main(O: T.Tensor((3, 128), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            for k in T.serial(3):
                O[k, tx] = 0
            if T.shuffle_elect(0):
                O[0, tx] = 1
            if T.shuffle_elect(32):
                O[1, tx] = 1
            if T.shuffle_elect(64):
                O[2, tx] = 1

    tx = torch.arange(128)
    return run(main, out(torch.stack([tx == 0, tx % 32 == 0, tx % 64 == 0]).int()))
