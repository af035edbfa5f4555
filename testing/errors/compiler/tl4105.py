# SPDX-License-Identifier: Apache-2.0
# Passes check what programs that are not written in the language hand them.
from tile_programs import Builder

from tilelang.transform.pipeline import lower

with Builder(128, (1,), {"A": ((64, 64), "float32")}) as p:
    n = p.blocks[0] + 4
    X = p.fragment("X", (n, 64), "float32")
    p.fill(X)

lower(p.func, "sm_90a")
