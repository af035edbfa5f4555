# SPDX-License-Identifier: Apache-2.0
# Lowering by itself: in a whole program, layout inference gives every thread the elements that it needs.
from tvm import ir, tirx

from tilelang.layout import spread
from tilelang.target.arch import ARCHS
from tilelang.transform.lower.context import LowerContext
from tilelang.transform.lower.scalar import lower_scalar

F = tirx.decl_buffer((16, 64), "float32", "F", scope="local.fragment", layout=None)
A = tirx.decl_buffer((16,), "float32", "A", layout=None)
layout = spread.coalesced((16, 64), 128, 4, 16)
registers = tirx.decl_buffer((layout.span("reg"),), "float32", "F_r", scope="local", layout=None)
context = LowerContext(
    ARCHS["sm_90a"], tirx.Var("tx", "int32"), 128, {F: layout}, {F: registers}, {}, sync=lambda: None
)
element = tirx.BufferLoad(F, [3, 5], span=ir.Span(ir.SourceName(__file__), 17, 17, 12, 19))
lower_scalar(tirx.IfThenElse(element > 0.0, tirx.BufferStore(A, element, [0]), None), context)
