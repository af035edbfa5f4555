# SPDX-License-Identifier: Apache-2.0
"""Every member of every device-op family assembles, for the lowest architecture it claims and for sm_90a."""

from __future__ import annotations

import itertools

import pytest

from tilelang.codegen import nvrtc
from tilelang.codegen.compile import CompileOptions, compile_cuda
from tilelang.codegen.prelude import prelude_for
from tilelang.ir.device.mma import MMA_SHAPES
from tilelang.ir.device.row import CTYPE, Kind
from tilelang.ir.device_ops import DEVICE_OPS, DeviceOpRow
from tilelang.target.arch import ARCHS
from tilelang.target.toolchain import nvcc_path

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(not nvrtc.is_available() and nvcc_path() is None, reason="no CUDA compiler"),
]

_SAMPLES = {
    "regs": ["f4", "f64 r32"], "n": [8, 64, 256], "pending": [0, 1, 7], "bytes": [32, 16384],
    "number": [1], "name": ["full"], "role": ["", "consumer"], "first": [-1, 1], "place": ['a "b".py:12 100%d'],
}  # fmt: skip


def members(row: DeviceOpRow) -> list[dict]:
    """Static parameters of the members tried: all choices, samples of numbers."""
    if row.name == "mma":
        return [
            {"shape": s, "a_dtype": a, "b_dtype": b, "acc_dtype": c}
            for s, dtypes, accs, _, _ in MMA_SHAPES
            for a in dtypes
            for b in (dtypes if a in ("int8", "uint8", "float8_e4m3fn", "float8_e5m2") else (a,))
            for c in accs
        ]
    axes = []
    for s in row.statics:
        if row.name.startswith("setmaxnreg"):
            axes.append([24, 240])
        elif s.choices:
            axes.append(list(s.choices))
        elif s.type is bool:
            axes.append([False, True])
        else:
            axes.append(_SAMPLES[s.name])
    found = []
    for values in itertools.product(*axes):
        statics = dict(zip((s.name for s in row.statics), values, strict=True))
        if row.name in ("wgmma_ss", "wgmma_rs") and not _sampled(statics):
            continue
        try:
            row.form(**statics)
        except ValueError:
            continue
        found.append(statics)
    return found


def _sampled(statics: dict) -> bool:
    """All pairs of types at n=64, all modes and sizes for one pair."""
    plain = statics["a_dtype"] == "bfloat16" and not statics["tnsp_a"]
    one = statics["a_dtype"] != "float16" or (statics["tnsp_b"] and statics["acc_dtype"] == "float16")
    return (statics["mode"] == "acc" and statics["n"] == 64 and one) or (plain and not statics["tnsp_b"])


def kernel(row: DeviceOpRow, statics: dict, name: str) -> str:
    """A kernel that calls one member with operands the compiler cannot guess."""
    form = row.form(**statics)
    setup, args, after = "", [], ""
    for i, o in enumerate(form.operands):
        t = CTYPE.get(o.dtype, "int")
        if o.kind is Kind.REGS:
            loop = f"for (int k = 0; k < {o.count}; ++k) "
            setup += f"{t} r{i}[{o.count}]; {loop} r{i}[k] = (({t}*)g)[k + {i} * 512 + threadIdx.x];\n"
            after += f"{loop} (({t}*)g)[k + {i} * 512 + threadIdx.x] = r{i}[k];\n"
            args.append(f"r{i}")
        elif o.kind is Kind.GMEM:
            args.append(f"({t}*)(g + {64 * i})" if o.dtype else f"(g + {64 * i})")
        elif o.kind is Kind.TMAP:
            args.append("(unsigned long long)&map")
        elif o.kind is Kind.SMEM:
            args.append(f"(n + {i} * 1024)")
        elif o.dtype == "handle":
            args.append("g")
        else:
            args.append(f"(({t}*)g)[{i}]")
    call = f"{row.helper_name(statics)}({', '.join(args)})"
    result = form.result
    call = f"{call};" if result == "void" else f"*({CTYPE[result]}*)(g + 4096) = {call};"
    return (
        f'extern "C" __global__ void __launch_bounds__(128) {name}(unsigned char* g, int n, '
        "const __grid_constant__ CUtensorMap map) {\n"
        "extern __shared__ unsigned char arena[]; arena[threadIdx.x] = g[threadIdx.x];\n"
        f"{setup}{call}\n{after}g[5] = arena[g[4]];\n}}\n"
    )


def text_of(rows: list[DeviceOpRow]) -> str:
    helpers, kernels = {}, []
    for row in rows:
        for i, statics in enumerate(members(row)):
            helpers[row.helper_name(statics)] = row.helper_text(statics)
            kernels.append(kernel(row, statics, f"k_{row.name}_{i}"))
    body = "".join(helpers.values()) + "".join(kernels)
    return prelude_for(body) + body


def _rows(arch: str) -> list[DeviceOpRow]:
    return [r for r in DEVICE_OPS.values() if ARCHS[arch].has(r.needs)]


_GROUPS = {
    "wgmma": lambda r: r.name.startswith("wgmma"),
    "shuffle": lambda r: r.name.startswith("shfl"),
    "atomic": lambda r: r.name.startswith("atomic"),
    "other": lambda r: not r.name.startswith(("wgmma", "shfl", "atomic")),
}


@pytest.mark.parametrize("group", _GROUPS)
def test_rows_assemble_for_sm_90a(group: str) -> None:
    rows = [r for r in _rows("sm_90a") if _GROUPS[group](r)]
    cubin = compile_cuda(text_of(rows), "sm_90a", CompileOptions(extra=("-w",)))
    assert len(cubin.kernels) == sum(len(members(r)) for r in rows)
    assert cubin.spill_bytes == 0


def test_rows_assemble_for_sm_80() -> None:
    rows = [r for r in _rows("sm_80") if not r.name.startswith(("shfl", "mma", "atomic"))]
    compile_cuda(text_of(rows), "sm_80", CompileOptions(extra=("-w",)))


def test_helper_names_are_unique() -> None:
    names = [row.helper_name(s) for row in DEVICE_OPS.values() for s in members(row)]
    assert len(names) == len(set(names))
