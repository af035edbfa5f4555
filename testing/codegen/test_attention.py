# SPDX-License-Identifier: Apache-2.0
"""The hardest text keeps its shape through the printer and ptxas (PTX ISA and ptxas 13)."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from attention_program import attention

from tilelang.codegen.compile import compile_cuda, disassemble
from tilelang.codegen.cuda import CudaSource, TensorMapParam, lower_to_cuda
from tilelang.target.arch import arch_of
from tilelang.target.toolchain import find_tool

ARCH = arch_of("sm_90a")


@pytest.fixture(scope="module", params=[False, True], ids=["full", "causal"])
def source(request: pytest.FixtureRequest) -> CudaSource:
    return lower_to_cuda(attention(request.param), ARCH)


def test_launch_data(source: CudaSource) -> None:
    (kernel,) = source.kernels
    assert [p.name for p in kernel.params if isinstance(p, TensorMapParam)] == ["k_map", "o_map", "q_map", "v_map"]
    q = next(p for p in kernel.params if p.name == "q_map")
    assert isinstance(q, TensorMapParam)
    assert (q.index, q.spec.box, q.spec.swizzle) == (0, (64, 64, 2, 1, 1), 128)
    assert int(kernel.smem_bytes) == 3 * 65536 + 256
    assert str(kernel.grid[0]) == "grid"
    assert int(kernel.block[0]) == 384


def test_text(source: CudaSource) -> None:
    assert "cuda/std" not in source.text
    assert "__cvta_generic_to_shared" not in source.text
    assert source.text.count("smem_base = tl_smem_base(") == 1
    signature = source.text[source.text.index("fa_fwd_kernel(") :].split(")", 1)[0]
    names = [part.split()[-1].removesuffix("_ptr") for part in signature.split("(", 1)[1].split(",")]
    assert names == [p.name for p in source.kernels[0].params]


@pytest.mark.nvcc
def test_registers_and_instructions(source: CudaSource) -> None:
    cubin = compile_cuda(source.text, ARCH)
    assert cubin.registers == 168  # 65536 / 384 threads
    assert cubin.spill_bytes == 0
    assert cubin.notes == ()
    if find_tool("nvdisasm") is None:
        pytest.skip("no nvdisasm: machine code not looked at")
    counts = Counter(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\w+)", disassemble(cubin), re.M))
    assert counts["HGMMA"] in (48, 64)
    assert (counts["UTMALDG"], counts["UTMASTG"], counts["STSM"]) == (5, 2, 16)
    assert counts["LDL"] == counts["STL"] == 0
    assert sum(counts.values()) < 3000
