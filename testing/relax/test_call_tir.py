# SPDX-License-Identifier: Apache-2.0
"""A tile kernel called from a Relax module, run by the Relax VM on llvm."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tile_programs import Builder, gemm_program, region
from tvm import relax, tirx

from tilelang.relax import compile_module, tile_function


def _module(func: object, target: str) -> tvm.IRModule:
    """relu(A @ B + 1) with the product as a tile kernel."""
    builder = relax.BlockBuilder()
    a = relax.Var("a", relax.TensorType((512, 512), "float16"))
    b = relax.Var("b", relax.TensorType((512, 512), "float16"))
    kernel = builder.add_func(tile_function(func, target), "matmul")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            c = builder.emit(relax.call_tir(kernel, [a, b], out_ty=relax.TensorType((512, 512), "float16")))
            out = builder.emit_output(relax.op.nn.relu(relax.op.add(c, relax.const(1.0, "float16"))))
        builder.emit_func_output(out)
    return builder.get()


def test_runs_in_the_virtual_machine() -> None:
    executable = compile_module(_module(gemm_program(), "cpu"), "cpu")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype("float16") for _ in range(2))
    vm = relax.VirtualMachine(executable, tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b)).numpy()
    want = np.maximum(a.astype("float32") @ b.astype("float32") + 1, 0)
    np.testing.assert_allclose(got.astype("float32"), want, rtol=1e-2, atol=5e-2)


def test_symbolic_shapes_are_refused() -> None:
    n = tirx.Var("n", "int32")
    with Builder(128, (1,), {"A": ((n, 64), "float16")}) as b:
        b.copy(region(b.args[0], (0, 64), (0, 64)), b.shared("S", (64, 64)))
    with pytest.raises(ValueError, match="symbolic shape"):
        tile_function(b.func)


def _cuda_text(module: tvm.runtime.Module) -> str:
    """The CUDA sources anywhere in a module."""
    own = module.inspect_source() if module.kind == "cuda" else ""
    return own + "".join(_cuda_text(imported) for imported in module.imports)


def test_builds_for_cuda() -> None:
    """The kernel's text with its device operations ends up in the executable, beside Relax's own kernels."""
    executable = compile_module(_module(gemm_program(), "cuda:sm_90a"), "cuda:sm_90a")
    text = _cuda_text(executable.mod)
    assert "wgmma.mma_async" in text and "cp.async.bulk.tensor" in text
    assert text.count("__global__") >= 2
