# SPDX-License-Identifier: Apache-2.0
"""Local arrays handed to device ops as pointers stay in registers, also where the op reinterprets their type."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.codegen import nvrtc
from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.ir.device_ops import device_op, registers
from tilelang.target.arch import arch_of
from tilelang.target.toolchain import nvcc_path

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(not nvrtc.is_available() and nvcc_path() is None, reason="no CUDA compiler"),
]


def _local(n: int, dtype: str):
    return T.alloc_buffer((n,), dtype, scope="local", layout=None)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_packed_arrays_stay_in_registers(dtype: str) -> None:
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("main")
        x = T.arg("x", T.buffer((64, 128), "float32", layout=None))
        with T.launch_thread("blockIdx.x", 4), T.launch_thread("threadIdx.x", 128) as t:
            arena = T.alloc_buffer((65536,), "uint8", scope="shared.dyn", align=1024, layout=None)
            tile = T.decl_buffer((8192,), dtype, data=arena.data, elem_offset=0, scope="shared.dyn", layout=None)
            acc, a, b, o = _local(4, "float32"), _local(8, dtype), _local(4, dtype), _local(8, dtype)
            with T.unroll(0, 4) as i:
                T.buffer_store(acc, x[i, t], [i])
            T.evaluate(device_op("ldmatrix_x4", a.data, tirx.address_of(tile[t * 8])).value)
            T.evaluate(device_op("ldmatrix_x2", b.data, tirx.address_of(tile[t * 8 + 1024]), trans=True).value)
            shape = {"shape": "m16n8k16", "a_dtype": dtype, "b_dtype": dtype}
            with T.serial(0, 8, unroll=True):
                T.evaluate(device_op("mma", acc.data, a.data, b.data, **shape).value)
            for half in range(2):
                with T.vectorized(0, 4) as v:
                    T.buffer_store(o, tirx.Cast(dtype, acc[v]), [v + 4 * half])
            T.evaluate(device_op("reg_fence", acc.data, o.data, regs=registers(acc, o)).value)
            T.evaluate(device_op("stmatrix_x4", tirx.address_of(tile[t * 8]), o.data).value)
            T.evaluate(device_op("stmatrix_x2", tirx.address_of(tile[t * 8 + 2048]), tirx.address_of(o[4])).value)
    cubin = compile_cuda(lower_to_cuda(ib.get(), arch_of("sm_90a")).text, "sm_90a")
    usage = cubin.kernels["main_kernel"]
    assert usage.stack == 0
    assert cubin.spill_bytes == 0
    assert "ld.local" not in cubin.ptx and "st.local" not in cubin.ptx
