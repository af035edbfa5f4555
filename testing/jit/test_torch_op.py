# SPDX-License-Identifier: Apache-2.0
"""Kernels as operators of torch: schemas, traces, gradients."""

from __future__ import annotations

import itertools

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.jit.torch_op import schema_of

NUMBERS = itertools.count()


def fresh():
    return f"tilelang_tests::op_{next(NUMBERS)}"


def scaled(target="cpu", out_idx=(2,)):
    @T.prim_func
    def main(A: T.Tensor((T.dynamic("n"), 8), "float32"), s: T.float32, B: T.Tensor((T.dynamic("n"), 8), "float32")):
        with T.Kernel(A.shape[0], threads=32) as b:
            for i in T.Parallel(8):
                B[b, i] = A[b, i] * s

    return tilelang.compile(main, out_idx=list(out_idx), target=target)


@pytest.mark.parametrize("target", ["cpu", "sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_compiled_code_keeps_the_operator(target):
    op = scaled(target).torch_op(fresh())
    device = "cuda" if target == "cuda" else "cpu"
    compiled = torch.compile(lambda x: op(x, 3.0) + 1, backend="aot_eager", fullgraph=True)
    for n in (5, 6, 7):  # sizes become symbols
        x = torch.randn(n, 8, device=device)
        torch.testing.assert_close(compiled(x), x * 3 + 1)


def test_torch_finds_nothing_to_complain_of():
    op = scaled().torch_op(fresh())
    torch.library.opcheck(op, (torch.randn(4, 8), 2.0))
    inplace = scaled(out_idx=()).torch_op(fresh())
    torch.library.opcheck(inplace, (torch.randn(4, 8), 2.0, torch.empty(4, 8)))


def test_what_is_written_in_place_is_seen():
    op = scaled(out_idx=()).torch_op(fresh())

    def program(x):
        y = torch.zeros_like(x)
        before = y + 1
        op(x, 2.0, y)
        return before, y + 1

    x = torch.randn(4, 8)
    before, after = torch.compile(program, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(before, torch.ones(4, 8))
    torch.testing.assert_close(after, x * 2 + 1)


def test_gradients_and_export():
    op = scaled().torch_op(fresh())
    op.register_autograd(
        lambda ctx, grad: (op(grad.contiguous(), ctx.s), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "s", inputs[1]),
    )
    x = torch.randn(4, 8, requires_grad=True)
    op(x, 3.0).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full((4, 8), 3.0))

    class Module(torch.nn.Module):
        def forward(self, x):
            return op(x, 2.0)

    exported = torch.export.export(Module(), (torch.ones(4, 8),)).module()
    assert torch.equal(exported(torch.ones(4, 8)), torch.full((4, 8), 2.0))


def test_several_outputs():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = A[i] + 1
                C[i] = T.cast(A[i], "int32")

    op = tilelang.compile(main, out_idx=[1, 2], target="cpu").torch_op(fresh())
    compiled = torch.compile(lambda x: op(x)[0] + op(x)[1], backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.full((8,), 2.5)), torch.full((8,), 5.5))


@T.prim_func
def every_way(
    A: T.Tensor((64, 64), "float16"),
    stored: T.Tensor((64, 64), "float16"),
    copied: T.Tensor((64, 64), "float16"),
    added: T.Tensor((64,), "float32"),
    viewed: T.Tensor((64, 64), "float16"),
    flag: T.bool,
    n: T.int32,
):
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((64, 64), "float16")
        T.copy(A, S)
        T.copy(S, copied)
        flat = T.view(viewed, (4096,))
        for i, j in T.Parallel(64, 64):
            stored[i, j] = S[i, j] + n
        for i in T.Parallel(64):
            T.atomic_add(added[i], T.cast(S[i, 0], "float32"))
        for i in T.Parallel(4096):
            if flag:
                flat[i] = S[i // 64, i % 64]


def test_every_way_of_writing_is_in_the_schema():
    kernel = tilelang.compile(every_way, target="cpu")
    schema, written = schema_of(kernel.signature, every_way)
    assert written == ["stored", "copied", "added", "viewed"]
    tensors = "Tensor A, Tensor(a1!) stored, Tensor(a2!) copied, Tensor(a3!) added, Tensor(a4!) viewed"
    assert schema == f"({tensors}, bool flag, int n) -> ()"


SOURCE = """
extern "C" __global__ void main_kernel(float* A, float* B) { B[threadIdx.x] = A[threadIdx.x]; }
"""


@pytest.mark.nvcc
def test_what_source_of_ones_own_gets_counts_as_written():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        T.CUDASourceCodeKernel(1, threads=32, source_code_or_path=SOURCE)

    assert schema_of(tilelang.compile(main, target="cuda").signature, main)[1] == ["A", "B"]


def test_names_and_addresses():
    with pytest.raises(ValueError, match="'namespace::name', got 'scaled'"):
        scaled().torch_op("scaled")

    @T.prim_func
    def main(p: T.ptr, n: T.int32):
        with T.Kernel(1, threads=32):
            A = T.make_tensor(p, (32,), "float32")
            for i in T.Parallel(32):
                A[i] = 0

    with pytest.raises(ValueError, match="main reaches memory by address"):
        tilelang.compile(main, target="cpu").torch_op(fresh())
