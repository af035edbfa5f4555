# SPDX-License-Identifier: Apache-2.0
"""A level-4 function around lowered statements, for looking at its CUDA text and machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import DataType, tirx

from tilelang.codegen.compile import Cubin, compile_cuda
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, dtype_of, substitute
from tilelang.target.arch import arch_of
from tilelang.transform.lower.context import LowerContext


def device_function(ctx: LowerContext, params: Sequence[Any], stmts: Sequence[Any], scalars: Sequence[Any] = ()) -> Any:
    """One launch of `ctx.threads` threads: registers, the arena with its views, then the statements."""
    views, offset, out = {}, 0, []
    flats = [*ctx.shared.values(), *(s.buffer for s in ctx.allocs)]
    for flat in flats:
        size = int(flat.ty.shape[0])
        bits = 8 * _bytes(flat)
        views[flat] = tirx.decl_buffer(
            (size,), dtype_of(flat), flat.name, elem_offset=offset * 8 // bits, scope="shared.dyn", layout=None
        )
        offset += -(-size * bits // 8 // 1024) * 1024
    smem = tirx.decl_buffer((max(offset, 16),), "uint8", "smem", scope="shared.dyn", data_alignment=1024, layout=None)
    out.append(tirx.AllocBuffer(smem))
    out += [tirx.DeclBuffer(view, data=smem.data) for view in views.values()]
    out += [tirx.AllocBuffer(r) for r in ctx.registers.values()]
    body = as_stmt([*out, *(substitute(s, views) for s in stmts)])
    for var, tag, extent in ((ctx.thread, "threadIdx.x", ctx.threads), (tirx.Var("bx", "int32"), "blockIdx.x", 4)):
        axis = tirx.IterVar(None, var, 1, tag)
        body = tirx.AttrStmt(axis, "thread_extent", tirx.const(extent, "int32"), body)
    return tirx.PrimFunc([*params, *scalars], body).with_attr("s_tir", True).with_attr("global_symbol", "kernel")


def _bytes(buffer: Any) -> int:
    return DataType(dtype_of(buffer)).bits // 8


def cuda_text(func: Any, arch: str = "sm_90a") -> str:
    return lower_to_cuda(func, arch_of(arch)).text


def assemble(func: Any, arch: str = "sm_90a") -> Cubin:
    return compile_cuda(cuda_text(func, arch), arch_of(arch))


def block_barrier() -> Any:
    return device_op("sync_threads")
