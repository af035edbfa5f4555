# SPDX-License-Identifier: Apache-2.0
# K is 32 in one operand and 64 in the other; the language refuses this earlier.
from tile_programs import Builder

from tilelang.transform.pipeline import lower

with Builder(128, (1,)) as p:
    A, B, C = p.shared("A", (64, 32)), p.shared("B", (64, 64)), p.fragment("C", (64, 64), "float32")
    p.gemm(A, B, C)

lower(p.func, "sm_90a")
