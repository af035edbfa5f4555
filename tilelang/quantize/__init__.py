# SPDX-License-Identifier: Apache-2.0
"""Weights of few bits: packing them on the host, and taking them apart inside a kernel.

`general_compress` puts elements one behind the other, `interleave_weight` orders them as `get_lop3_intrin_group` reads
them. A kernel that only loads and converts needs none of it: tensors of `int4` and the like are read as they are.
"""

from __future__ import annotations

from tilelang.quantize.elements import (
    _tir_packed_int_to_int_convert,
    _tir_packed_to_signed_convert,
    _tir_packed_to_unsigned_convert,
    _tir_packed_to_unsigned_convert_with_zeros,
    _tir_u8_to_f4_to_bf16,
    _tir_u8_to_f8_e4m3_to_f16,
)
from tilelang.quantize.lop3 import get_lop3_intrin_group
from tilelang.quantize.packing import general_compress, interleave_weight
from tilelang.support.import_paths import lazy_names

__all__ = [
    "_tir_packed_int_to_int_convert",
    "_tir_packed_to_signed_convert",
    "_tir_packed_to_unsigned_convert",
    "_tir_packed_to_unsigned_convert_with_zeros",
    "_tir_u8_to_f4_to_bf16",
    "_tir_u8_to_f8_e4m3_to_f16",
    "general_compress",
    "get_lop3_intrin_group",
    "interleave_weight",
]

_FLOAT4 = "declare the tensor float4_e2m1fn and convert its elements: T.cast(B[i, j], 'float16')"
__getattr__ = lazy_names(
    __name__,
    {},
    {
        "_tir_packed_to_fp4_to_f16": _FLOAT4,
        "_tir_u32_to_f4_to_f16": _FLOAT4,
        "gen_quant4": "quantise with torch, and pack with general_compress",
        "get_mxfp_intrin_group": _FLOAT4,
    },
)
