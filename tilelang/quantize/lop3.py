# SPDX-License-Identifier: Apache-2.0
"""CUDA functions that take apart what `interleave_weight` packed, for `T.import_source` and `T.call_extern`.

float16: an element is put into the mantissa of 1024.0, where it counts 1, and 1024 (and the offset of signed elements)
is subtracted: both steps are exact. int8: a mask takes four elements out at once.
"""

from __future__ import annotations

from typing import Any

__all__ = ["get_lop3_intrin_group"]

_ELEMENTS = {"float16": 8, "int8": 16}  # that one call decodes unless told otherwise

_TO_HALF = """#include <cuda_fp16.h>
template <typename Packed, typename Decoded{more_types}>
static __device__ void {name}(Packed *packed, Decoded *decoded{more}, const int N = {count}) {{
  const unsigned *words = reinterpret_cast<const unsigned *>(packed);
  __half2 *pairs = reinterpret_cast<__half2 *>(decoded);
  const __half2 base = __float2half2_rn({base}.0f);
  for (int i = 0; i < N / 2; ++i) {{
    const unsigned word = words[i / {steps}] >> (i % {steps} * {bits});
    const unsigned bits = (word & 0x{mask:08x}u) | 0x64006400u;
    __half2 pair;
    memcpy(&pair, &bits, sizeof(pair));
    pair = __hsub2(pair, base);
{scaling}    pairs[i] = pair;
  }}
}}
"""

_TO_INT8 = """template <typename Packed, typename Decoded>
static __device__ void {name}(Packed *packed, Decoded *decoded, const int N = {count}) {{
  const unsigned *words = reinterpret_cast<const unsigned *>(packed);
  unsigned *fours = reinterpret_cast<unsigned *>(decoded);
  for (int i = 0; i < N / 4; ++i) {{
    const unsigned bits = (words[i / {steps}] >> (i % {steps} * {bits})) & 0x{mask:08x}u;
    fours[i] = ((bits | 0x80808080u) - 0x{offset:08x}u) ^ 0x80808080u;
  }}
}}
"""


def get_lop3_intrin_group(
    out_dtype: Any = "float16",
    source_format: str = "uint",
    source_bit: int = 4,
    storage_dtype: Any = "int32",
    with_scaling: bool = False,
    with_zeros: bool = False,
    zeros_mode: str = "original",
    storage_scope: str = "local",
) -> dict[str, str]:
    """{"func_name": ..., "c_source": ...} of a CUDA function `f(packed, decoded, [scale], [zero], N)`.

    It decodes N elements (8 of float16, 16 of int8 if left out) from 32-bit words on, in registers. Signed elements
    were made unsigned by adding half their range. `scale` and `zero` point to one float16 each: (x - zero) * scale, or
    x * scale - zero where `zeros_mode` is "rescale". `storage_dtype` and `storage_scope` change nothing. Raises
    `ValueError` for other types and widths, and for scales of int8.
    """
    out = str(out_dtype).removeprefix("torch.")
    if out not in _ELEMENTS or source_format not in ("int", "uint") or source_bit not in (1, 2, 4):
        raise ValueError(
            f"int and uint of 1, 2 or 4 bits become float16 or int8, got {source_format}{source_bit} and {out}"
        )
    if (with_scaling or with_zeros) and out != "float16":
        raise ValueError("only float16 is scaled as it is decoded: scale the sums of int8 products")
    if with_zeros and (not with_scaling or zeros_mode not in ("original", "rescale")):
        raise ValueError(f"zeros need with_scaling and the zeros_mode original or rescale, got {zeros_mode!r}")
    offset = 1 << (source_bit - 1) if source_format == "int" else 0
    name = f"decode_{source_format[0]}{source_bit}_to_{'f16' if out == 'float16' else 'i8'}"
    one = (1 << source_bit) - 1
    if out == "int8":
        text = _TO_INT8.format(
            name=name,
            count=16,
            steps=8 // source_bit,
            bits=source_bit,
            mask=one * 0x01010101,
            offset=offset * 0x01010101,
        )
        return {"func_name": name, "c_source": text}
    scaling, more, types = "", "", ""
    if with_scaling:
        name, more, types = f"{name}_scaled", ", Scale *scale", ", typename Scale"
        scaling = "    pair = __hmul2(pair, __half2half2(*reinterpret_cast<const __half *>(scale)));\n"
    if with_zeros:
        name, more, types = f"{name}_{zeros_mode}", f"{more}, Zero *zero", f"{types}, typename Zero"
        minus = "    pair = __hsub2(pair, __half2half2(*reinterpret_cast<const __half *>(zero)));\n"
        scaling = minus + scaling if zeros_mode == "original" else scaling + minus
    text = _TO_HALF.format(
        name=name, more=more, more_types=types, count=8, base=1024 + offset, steps=16 // source_bit, bits=source_bit,
        mask=one * 0x00010001, scaling=scaling,
    )  # fmt: skip
    return {"func_name": name, "c_source": text}
