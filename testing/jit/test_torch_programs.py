# SPDX-License-Identifier: Apache-2.0
"""Kernels inside torch programs: operators, autograd, torch.compile; what a profiler needs to know of symbols."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T

TARGETS = ["cpu", "sim", pytest.param("cuda", marks=pytest.mark.gpu)]


def tripled(target):
    @T.prim_func
    def main(A: T.Tensor((T.dynamic("n"),), "float32"), B: T.Tensor((T.dynamic("n"),), "float32")):
        with T.Kernel(T.ceildiv(A.shape[0], 64), threads=64) as b:
            for i in T.Parallel(64):
                if b * 64 + i < A.shape[0]:
                    B[b * 64 + i] = A[b * 64 + i] * 3

    return tilelang.compile(main, out_idx=[1], target=target)


def device_of(target):
    return "cuda" if target == "cuda" else "cpu"


@pytest.mark.parametrize("target", TARGETS)
def test_an_operator_with_a_gradient(target):
    kernel = tripled(target)

    @torch.library.custom_op(f"tilelang_tests::tripled_{target}", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        return kernel(x)

    op.register_fake(torch.empty_like)
    op.register_autograd(lambda ctx, grad: op(grad.contiguous()))
    compiled = torch.compile(lambda x: op(x) + 1, backend="aot_eager", fullgraph=True)
    x = torch.randn(100, requires_grad=True, device=device_of(target))
    y = compiled(x)
    y.sum().backward()
    torch.testing.assert_close(y, x * 3 + 1)
    assert x.grad is not None and torch.equal(x.grad, torch.full_like(x, 3.0))


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_in_compiled_code(target):
    kernel = tripled(target)
    x = torch.randn(100, device=device_of(target))
    torch.testing.assert_close(torch.compile(lambda x: kernel(x) + 1, backend="aot_eager")(x), x * 3 + 1)


@pytest.mark.parametrize("target", TARGETS)
def test_a_profiler_is_told_the_symbols(target):
    profiler = tripled(target).get_profiler()
    assert profiler.do_bench(warmup=1, rep=1, dynamic_symbolic_constraints={"n": 100}) > 0
    with pytest.raises(ValueError, match="symbol n"):
        profiler.do_bench(warmup=1, rep=1)
