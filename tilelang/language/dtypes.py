# SPDX-License-Identifier: Apache-2.0
"""The scalar element types, one name each; `tilelang.language` makes the vector types (`T.float16x2`) itself."""

from __future__ import annotations

from tilelang.tir_builder.dtypes import DType

__all__ = [
    "bfloat16",
    "bool",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

bool = DType("bool")
int4 = DType("int4")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint4 = DType("uint4")
uint8 = DType("uint8")
uint16 = DType("uint16")
uint32 = DType("uint32")
uint64 = DType("uint64")
float16 = DType("float16")
float32 = DType("float32")
float64 = DType("float64")
bfloat16 = DType("bfloat16")
float8_e4m3fn = DType("float8_e4m3fn")
float8_e4m3fnuz = DType("float8_e4m3fnuz")
float8_e5m2 = DType("float8_e5m2")
float8_e5m2fnuz = DType("float8_e5m2fnuz")
float8_e8m0fnu = DType("float8_e8m0fnu")
float6_e2m3fn = DType("float6_e2m3fn")
float6_e3m2fn = DType("float6_e3m2fn")
float4_e2m1fn = DType("float4_e2m1fn")
