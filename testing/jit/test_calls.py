# SPDX-License-Identifier: Apache-2.0
"""How kernels are called: by position or name, with torch tensors or numpy arrays; what is refused, and how."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T


@T.prim_func
def scale(x: T.Tensor((8,), "float32"), k: T.int32, y: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            y[i] = x[i] * k


def factory(n):
    return scale


@tilelang.jit(target="cpu")
def double(A, block=64):
    n = T.const("n")
    A: T.Tensor((n,), "float32")
    C = T.empty((n,), "float32")
    with T.Kernel(T.ceildiv(n, block), threads=64) as b:
        for i in T.Parallel(block):
            C[b * block + i] = A[b * block + i] * 2.0
    return C


@pytest.fixture(scope="module", params=["cpu", "sim"])
def kernel(request):
    return tilelang.compile(scale, out_idx=[2], target=request.param)


A = torch.arange(8.0)


@pytest.mark.parametrize("args, named", [((A, 3), {}), ((A,), {"k": 3}), ((), {"k": 3, "x": A})])
def test_inputs_by_position_and_by_name(kernel, args, named):
    assert torch.equal(kernel(*args, **named), A * 3)


@pytest.mark.parametrize(
    "args, named, text",
    [
        ((A,), {"q": 3}, "has no input 'q'; its inputs are x, k"),
        ((A, 3), {"x": A}, "got input 'x' twice"),
        ((), {"k": 3}, "lacks the input 'x'"),
    ],
)
def test_names_that_do_not_fit(kernel, args, named, text):
    with pytest.raises(TypeError, match=text):
        kernel(*args, **named)


def test_numpy_in_numpy_out(kernel):
    got = kernel(A.numpy(), np.int64(3))
    assert isinstance(got, np.ndarray) and np.array_equal(got, A.numpy() * 3)
    assert isinstance(kernel(A, np.int64(3)), torch.Tensor)
    assert torch.equal(kernel(A, np.array(3)), A * 3)


def test_outputs_are_written_to_arrays_of_types_that_numpy_lacks():
    @T.prim_func
    def main(x: T.Tensor((8,), "bfloat16"), y: T.Tensor((8,), "bfloat16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                y[i] = x[i] + x[i]

    x, y = np.arange(8).astype(ml_dtypes.bfloat16), np.zeros(8, ml_dtypes.bfloat16)
    tilelang.compile(main, target="cpu")(x, y)
    assert np.array_equal(y, x + x)
    got = tilelang.compile(main, target="cpu", out_idx=[1])(x)
    assert got.dtype == x.dtype and np.array_equal(got, x + x)


@pytest.mark.parametrize(
    "value, kind, text",
    [
        (np.broadcast_to(np.float32(1), (8,)), ValueError, "'x': required a writable array"),
        (np.zeros(8, "float32")[::-1], ValueError, "'x': required strides of 0 or more"),
        (np.zeros(8, object), TypeError, "'x': required an array of numbers in native order, given object"),
        (np.zeros(8, ">f4"), TypeError, "'x': required an array of numbers in native order, given >f4"),
        (np.zeros(8), TypeError, "'x': required dtype float32, given float64"),
        (np.zeros((2, 4), "float32"), ValueError, "'x': required rank 1, given 2"),
        (np.zeros(16, "float32")[::2], ValueError, "'x': required stride"),
        ([0.0] * 8, TypeError, "'x': required a tensor of float32, given list"),
        (None, TypeError, "'x': required a tensor, given None"),
    ],
)
def test_arrays_that_do_not_fit(kernel, value, kind, text):
    with pytest.raises(kind, match=text):
        kernel(value, 3)


@pytest.mark.parametrize(
    "value, kind",
    [(np.int64(2**40), ValueError), (np.float64(3.5), TypeError), (np.array([3]), TypeError), (None, TypeError)],
)
def test_scalars_that_do_not_fit(kernel, value, kind):
    with pytest.raises(kind, match="argument 1 'k': required"):
        kernel(A, value)


def test_eager_functions_take_arrays_and_name_what_is_no_tensor():
    got = double(A.numpy())
    assert isinstance(got, np.ndarray) and np.array_equal(got, A.numpy() * 2)
    for value, given in ((None, "None"), ([1.0], "list")):
        with pytest.raises(TypeError, match=f"argument 0 'A': required a tensor, given {given}"):
            double(value)


def test_a_gpu_takes_no_arrays():
    with pytest.raises(TypeError, match=r"pass torch.from_numpy\(x\).cuda\(\)"):
        double.with_options(target="cuda")(A.numpy())


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda: tilelang.compile(factory), AssertionError, r"got function factory: pass what it returns"),
        (lambda: tilelang.compile(factory), TypeError, r"got function factory: pass what it returns"),
        (lambda: tilelang.compile(double), TypeError, r"got JITImpl double: call it, double\(...\), which compiles"),
        (lambda: tilelang.compile("scale"), TypeError, "takes a T.prim_func, got str$"),
        (lambda: tilelang.compile(tilelang.compile(scale, target="cpu")), TypeError, "compiled already: call it"),
        (lambda: tilelang.compile(scale, out_idx="y"), TypeError, "out_idx is an int or a list of ints, got 'y'"),
        (lambda: tilelang.compile(scale, out_idx=True), TypeError, "out_idx is an int or a list of ints"),
        (lambda: tilelang.compile(scale, pass_configs=[1]), TypeError, "pass_configs is a dictionary, got list"),
        (lambda: tilelang.compile(scale, compile_flags=3), TypeError, "compile_flags is a string or a list"),
        (lambda: tilelang.jit(factory)(3, target="cpu"), TypeError, "target is an option of the decorator"),
        (lambda: tilelang.jit(factory)(), TypeError, r"missing a required argument: 'n'; parameters are \(n\)"),
        (lambda: tilelang.jit(factory).par_compile([3]), TypeError, "a configuration is a dictionary or a tuple"),
    ],
)
def test_calls_of_the_host_interface_that_do_not_fit(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_the_simulator_names_a_tensor_that_the_copy_engine_cannot_address():
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for _ in T.Pipelined(2, num_stages=2):
                T.copy(X, S)
                T.gemm(S, S, F)
            T.copy(F, Y)

    shifted = torch.zeros(64 * 64 + 8, dtype=torch.float16)[1 : 64 * 64 + 1].view(64, 64)
    with pytest.raises(ValueError, match="argument 0 'X': required data aligned to 16 bytes"):
        tilelang.compile(main, target="sim")(shifted, torch.zeros(64, 64))


N = T.dynamic("n")


@T.prim_func
def guarded(X: T.Tensor((N, 8), "float32"), k: T.int32):
    rows = N // 2
    assert rows * 2 == N, "an even number of rows"
    assert k > 0
    with T.Kernel(rows, threads=32) as b:
        for j in T.Parallel(8):
            X[b, j] = k


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_assertions_of_the_host_part_are_checked_at_a_call(target):
    kernel = tilelang.compile(guarded, target=target)
    x = torch.zeros(4, 8)
    kernel(x, 3)
    assert x.sum() == 2 * 8 * 3
    with pytest.raises(RuntimeError, match=r"guarded\(\): an even number of rows"):
        kernel(torch.zeros(3, 8), 3)
    with pytest.raises(RuntimeError, match="k > 0"):
        kernel(x, 0)


def test_assertions_of_the_host_part_are_in_the_signature_of_a_gpu_kernel():
    signature = tilelang.compile(guarded, target="cuda").signature
    assert [said for _, said in signature.preconditions][0] == "an even number of rows"
    assert type(signature).from_json(signature.to_json()) == signature


@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize("dtype, given", [("int8", "bool"), ("uint8", "bool"), ("bool", "uint8"), ("bool", "int8")])
def test_truth_values_are_bytes(target, dtype, given):
    @T.prim_func
    def main(x: T.Tensor((8,), dtype), y: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                y[i] = T.cast(x[i], "int32") * 3

    x = (torch.arange(8) % 3 == 0).to(getattr(torch, given))
    kernel = tilelang.compile(main, out_idx=[1], target=target)
    assert torch.equal(kernel(x), x.int() * 3) and np.array_equal(kernel(x.numpy()), x.int().numpy() * 3)
