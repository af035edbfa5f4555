# SPDX-License-Identifier: Apache-2.0
"""Suggested tiles: they fit, programs compile with them, and the ranking knows what measurements say."""

from __future__ import annotations

import math

import pytest

import tilelang
import tilelang.language as T
from tilelang.carver.arch import CDNA, CPU, CUDA, METAL, RDNA
from tilelang.carver.roller.rasterization import NoRasterization, Rasterization2DRow
from tilelang.carver.template import (
    ConvTemplate,
    ElementwiseTemplate,
    FlashAttentionTemplate,
    GEMVTemplate,
    GeneralReductionTemplate,
    MatmulTemplate,
)
from tilelang.language.errors import NotSupported

TEMPLATES = {
    "product": MatmulTemplate(4096, 4096, 4096, "float16", "float16", "float"),
    "product of odd sizes": MatmulTemplate(77, 1000, 90, "bfloat16", "float32", "float32"),
    "product of bytes": MatmulTemplate(1024, 1024, 1024, "int8", "int32", "int32"),
    "convolution": ConvTemplate(8, 128, 64, 64, 256, 3, 1, 1, 1, accum_dtype="float32"),
    "attention": FlashAttentionTemplate(8, 32, 128, 4096, 4096, accum_dtype="float32"),
    "causal attention": FlashAttentionTemplate(1, 8, 64, 1024, 1024, is_causal=True),
    "vector": GEMVTemplate(4096, 4096, "float16", "float16", "float32"),
    "rows": GeneralReductionTemplate("SSR", [64, 128, 4096], "float32"),
    "columns": GeneralReductionTemplate("SRS", [64, 128, 4096]),
    "one sum": GeneralReductionTemplate("RR", [64, 4096]),
    "matrix": ElementwiseTemplate([4096, 4096]),
    "list": ElementwiseTemplate([1 << 20], "float32"),
}


def product(M, N, K, hint):
    (rows, columns), (depth,) = hint.block, hint.rstep
    policy = T.GemmWarpPolicy.from_warp_partition(*(b // w for b, w in zip(hint.block, hint.warp)))

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, columns), T.ceildiv(M, rows), threads=hint.threads) as (bx, by):
            a = T.alloc_shared((rows, depth), "float16")
            b = T.alloc_shared((columns, depth), "float16")
            c = T.alloc_fragment((rows, columns), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, depth), num_stages=hint.pipeline_stage):
                T.copy(A[by * rows, k * depth], a)
                T.copy(B[bx * columns, k * depth], b)
                T.gemm(a, b, c, transpose_B=True, policy=policy)
            T.copy(c, C[by * rows, bx * columns])

    return main


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_hints_fit_and_are_ranked(name, arch):
    hints = TEMPLATES[name].with_arch(CUDA(arch)).recommend_hints(topk=6)
    assert 1 <= len(hints) <= 6
    assert all(32 <= hint.threads <= 1024 and hint.threads % 32 == 0 for hint in hints)
    times = [hint.estimated_seconds for hint in hints]
    assert times[0] > 0 and all(math.isfinite(t) for t in times)
    assert all(later > 0.97 * times[0] for later in times)  # within the step that counts as equal


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (256, 4096, 1024), (16, 4096, 4096)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_products_compile_with_their_hints(shape, arch):
    for hint in MatmulTemplate(*shape, "float16", "float16", "float32").with_arch(CUDA(arch)).recommend_hints(topk=3):
        text = tilelang.compile(product(*shape, hint), target=f"cuda:{arch}").get_kernel_source()
        assert ("wgmma" in text) == (arch == "sm_90a")


def test_the_best_tile_of_large_products_is_the_measured_one():
    best = (
        MatmulTemplate(4096, 4096, 4096, "float16", "float16", "float32").with_arch(CUDA("sm_90a")).recommend_hints(1)
    )
    (hint,) = best
    assert (hint.block, hint.rstep, hint.pipeline_stage, hint.threads) == ([128, 256], [64], 4, 256)
    assert hint.use_async and hint.use_tc and isinstance(hint.rasterization_plan, Rasterization2DRow)


def test_small_products_have_small_tiles_and_no_panels():
    hint = MatmulTemplate(1024, 1024, 1024, accum_dtype="float32").with_arch(CUDA("sm_90a")).recommend_hints(1)[0]
    assert math.prod(hint.block) == 64 * 128 and hint.rasterization_plan == NoRasterization()
    few = MatmulTemplate(16, 4096, 4096, accum_dtype="float32").with_arch(CUDA("sm_90a")).recommend_hints(1)[0]
    assert few.block[0] == 16


def test_attention_reads_keys_for_many_queries():
    hint = TEMPLATES["attention"].with_arch(CUDA("sm_90a")).recommend_hints(1)[0]
    assert hint.block == [128, 128] and hint.threads == 256 and hint.pipeline_stage >= 2


@pytest.mark.parametrize(("name", "block", "steps"), [("rows", 2, 1), ("columns", 2, 1), ("one sum", 0, 2)])
def test_reductions_have_a_size_for_every_axis(name, block, steps):
    for hint in TEMPLATES[name].with_arch(CUDA("sm_90a")).recommend_hints():
        assert (len(hint.block), len(hint.thread)) == (block, block)
        assert (len(hint.rstep), len(hint.reduce_thread)) == (steps, steps)


def test_accesses_have_sixteen_bytes():
    assert all(h.vectorize == 8 for h in TEMPLATES["matrix"].with_arch(CUDA()).recommend_hints())
    assert all(h.vectorize == 4 for h in TEMPLATES["list"].with_arch(CUDA()).recommend_hints())


@pytest.mark.parametrize("model", [CDNA, RDNA, CPU, METAL])
def test_models_of_other_devices_are_refused(model):
    with pytest.raises(NotSupported, match=model.__name__):
        model("device")


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="sizes are positive"):
        MatmulTemplate(0, 4, 4).with_arch(CUDA("sm_90a")).recommend_hints()
    with pytest.raises(ValueError, match="topk"):
        MatmulTemplate(4, 4, 4).with_arch(CUDA("sm_90a")).recommend_hints(topk=0)
    with pytest.raises(ValueError, match="structure"):
        GeneralReductionTemplate("SR", [4, 4, 4]).with_arch(CUDA("sm_90a")).recommend_hints()
    with pytest.raises(ValueError, match="does not fit"):
        ConvTemplate(1, 8, 2, 2, 8, 3).with_arch(CUDA("sm_90a")).recommend_hints()
    with pytest.raises(TypeError, match="CUDA"):
        MatmulTemplate(4, 4, 4).with_arch("cuda")


def test_policies_of_grids_of_warps():
    grids = {(8, 1): T.GemmWarpPolicy.FullRow, (1, 8): T.GemmWarpPolicy.FullCol, (4, 2): T.GemmWarpPolicy.Square}
    assert all(T.GemmWarpPolicy.from_warp_partition(*grid) is policy for grid, policy in grids.items())


def test_a_template_has_no_program() -> None:
    template = MatmulTemplate(128, 128, 128).with_arch(CUDA("sm_80"))
    assert template.arch.sm_version == 80
    with pytest.raises(NotSupported, match="recommend_hints gives tile sizes"):
        template.equivalent_function()
