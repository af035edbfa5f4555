# SPDX-License-Identifier: Apache-2.0
"""cumulate, run thread by thread against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from run_threads import numpy_type
from test_lower_parallel import buffer, context, get_shared, machine, put_shared

from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.layout import row_major
from tilelang.transform.lower.cumulate import lower_cumulate


@pytest.mark.parametrize("shape", [(5, 40), (3, 6), (100,)])
@pytest.mark.parametrize(("kind", "reverse"), [("sum", False), ("sum", True), ("max", False)])
@pytest.mark.parametrize("threads", [48, 128])
def test_scans(shape: tuple[int, ...], kind: str, reverse: bool, threads: int) -> None:
    for dim in range(len(shape)):
        for dtype, same in (("float16", False), ("int32", True)):
            X = buffer("X", shape, dtype, "shared.dyn")
            Y = X if same else buffer("Y", shape, "float32", "shared.dyn")
            ctx = context(threads, {}, {b: row_major(shape, 1 if len(shape) > 1 else 0) for b in {X, Y}})
            operands = {"src": region_of(X), "dst": region_of(Y)}
            op = TileOp.from_stmt(make_tile_op("cumulate", operands, {"kind": kind, "dim": dim, "reverse": reverse}))
            assert op is not None
            stmt = lower_cumulate(op, ctx)
            mach = machine(ctx, {})
            x = np.random.default_rng(0).integers(-9, 9, shape).astype(numpy_type(dtype))
            put_shared(mach, ctx, X, x)
            mach.run(stmt)
            x = np.flip(x, dim) if reverse else x
            want = np.maximum.accumulate(x, dim) if kind == "max" else np.cumsum(x.astype(np.float64), dim)
            want = np.flip(want, dim) if reverse else want
            np.testing.assert_array_equal(get_shared(mach, ctx, Y), want)
