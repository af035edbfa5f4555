# SPDX-License-Identifier: Apache-2.0
# The language refuses this earlier.
from tile_programs import Builder

from tilelang.codegen.cuda import lower_to_cuda
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower

with Builder(2048, (1,)) as p:
    pass

lower_to_cuda(lower(p.func, "sm_90a"), ARCHS["sm_90a"])
