# SPDX-License-Identifier: Apache-2.0
"""Weights of few bits: packed on the host, decoded by expressions and by CUDA functions."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang import quantize
from tilelang.quantize import general_compress, get_lop3_intrin_group, interleave_weight
from tilelang.target.toolchain import nvcc_path

WIDTHS = [1, 2, 4]


@pytest.mark.parametrize("bits", WIDTHS)
def test_elements_lie_one_behind_the_other(bits):
    weight = torch.randint(0, 1 << bits, (3, 16), dtype=torch.int8)
    packed = general_compress(weight, bits)
    assert packed.dtype == torch.int8 and packed.shape == (3, 16 * bits // 8)
    for i in range(16):
        byte = packed[:, i * bits // 8].to(torch.int32) & 255
        assert torch.equal(byte >> (i * bits % 8) & ((1 << bits) - 1), weight[:, i].to(torch.int32))


def test_arrays_are_packed_like_tensors():
    weight = np.arange(64).reshape(2, 32) % 16
    packed = general_compress(weight, 4, "int32")
    assert isinstance(packed, np.ndarray) and packed.dtype == np.int32 and packed.shape == (2, 4)
    like = general_compress(torch.from_numpy(weight), 4, torch.int32)
    assert np.array_equal(packed, like.numpy())
    assert np.array_equal(interleave_weight(packed, 4), interleave_weight(like, 4).numpy())


def test_negative_elements_keep_their_lowest_bits():
    assert general_compress(torch.tensor([-1, -8, 7, 0]), 4).tolist() == [-113, 7]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: general_compress(torch.zeros(3), 4), "no whole bytes"),
        (lambda: general_compress(torch.zeros(8), 3), "1, 2 or 4"),
        (lambda: interleave_weight(torch.zeros(3, dtype=torch.int8)), "no whole 32-bit words"),
        (lambda: interleave_weight(torch.zeros(4, dtype=torch.int8), target_dtype="float32"), "got 4 and float32"),
        (lambda: get_lop3_intrin_group("float32"), "become float16 or int8"),
        (lambda: get_lop3_intrin_group("int8", with_scaling=True), "only float16 is scaled"),
        (lambda: get_lop3_intrin_group(with_scaling=True, with_zeros=True, zeros_mode="quantized"), "zeros_mode"),
    ],
)
def test_what_cannot_be_packed(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_names_that_are_refused_say_what_to_write():
    with pytest.raises(ImportError, match="declare the tensor float4_e2m1fn"):
        from tilelang.quantize import get_mxfp_intrin_group  # noqa: F401


def unpacked(convert, bits, dtype):
    @T.prim_func
    def main(P: T.Tensor((8,), "uint8"), O: T.Tensor((8 * 8 // bits,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8 * 8 // bits):
                O[i] = convert(bits, P[i * bits // 8], i % (8 // bits), dtype)

    return main


@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize("bits", WIDTHS)
def test_elements_inside_a_kernel(bits, target):
    weight = torch.randint(0, 1 << bits, (64 // bits,))
    packed = general_compress(weight, bits, torch.uint8)
    half = 1 << (bits - 1)
    for convert, wanted in (
        (quantize._tir_packed_to_unsigned_convert(), weight),
        (quantize._tir_packed_to_signed_convert(), weight - half),
        (quantize._tir_packed_int_to_int_convert(), (weight ^ half) - half),
        (lambda n, v, p, t: quantize._tir_packed_to_unsigned_convert_with_zeros()(n, v, p, 3, t), weight - 3),
    ):
        kernel = tilelang.compile(unpacked(convert, bits, "float32"), out_idx=[1], target=target)
        assert torch.equal(kernel(packed), wanted.float())


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small_floats_inside_a_kernel(target):
    def scaled(nbit, val, pos, dtype):
        return quantize._tir_u8_to_f4_to_bf16(nbit, val, pos, 3, dtype)

    codes = torch.arange(16)
    sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    kernel = tilelang.compile(unpacked(scaled, 4, "bfloat16"), out_idx=[1], target=target)
    wanted = torch.tensor([*sizes, *(-s for s in sizes)]).bfloat16() * 8
    assert torch.equal(kernel(general_compress(codes, 4, torch.uint8)), wanted)

    @T.prim_func
    def main(P: T.Tensor((256,), "uint8"), O: T.Tensor((256,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(256):
                O[i] = quantize._tir_u8_to_f8_e4m3_to_f16(8, P[i], "float16")

    every = torch.arange(256).to(torch.uint8)
    given = tilelang.compile(main, out_idx=[1], target=target)(every)
    assert torch.equal(given.nan_to_num(1000), every.view(torch.float8_e4m3fn).half().nan_to_num(1000))


@pytest.mark.nvcc
def test_the_decoders_read_what_was_interleaved(tmp_path):
    """The functions are compiled for the host, where they run."""
    parts = ["#include <cuda_fp16.h>\n#include <cstring>\n#include <cstdio>\n"]
    calls = []
    for out in ("float16", "int8"):
        for kind in ("int", "uint"):
            for bits in WIDTHS:
                made = get_lop3_intrin_group(out, kind, bits)
                parts.append(made["c_source"].replace("static __device__", "static __host__ __device__"))
                weight = torch.arange(64) * 7 % (1 << bits)
                packed = interleave_weight(general_compress(weight, bits), bits, out)
                data = ", ".join(str(int(v) & 255) for v in packed)
                wanted = ", ".join(str(int(v) - ((1 << bits - 1) if kind == "int" else 0)) for v in weight)
                element = "__half" if out == "float16" else "signed char"
                name = made["func_name"]
                value = "__half2float(d[i])" if out == "float16" else "d[i]"
                calls.append(
                    f"  {{ alignas(16) unsigned char p[] = {{{data}}}; alignas(16) {element} d[64];\n"
                    f"    int w[] = {{{wanted}}}; {name}(p, d, 64);\n"
                    f'    for (int i = 0; i < 64; ++i) if ({value} != w[i]) {{ puts("{name}"); break; }} }}\n'
                )
    scaled = get_lop3_intrin_group(with_scaling=True, with_zeros=True)
    parts.append(scaled["c_source"].replace("static __device__", "static __host__ __device__"))
    calls.append(
        "  { alignas(16) unsigned char p[] = {1, 0, 0, 0}; alignas(16) __half d[8];\n"
        f"    __half s = __float2half(0.5f), z = __float2half(3.0f); {scaled['func_name']}(p, d, &s, &z);\n"
        '    if (__half2float(d[0]) != -1.0f || __half2float(d[1]) != -1.5f) puts("scaled"); }\n'
    )
    source = tmp_path / "decoders.cu"
    source.write_text("".join(parts) + "int main() {\n" + "".join(calls) + '  puts("done");\n}\n')
    subprocess.run([str(nvcc_path()), "-o", str(tmp_path / "decoders"), str(source)], check=True)
    ran = subprocess.run([str(tmp_path / "decoders")], capture_output=True, text=True, check=True)
    assert ran.stdout == "done\n"


@pytest.mark.nvcc
@pytest.mark.parametrize("out", ["float16", "int8"])
def test_a_kernel_calls_a_decoder(out):
    made = get_lop3_intrin_group(out, "uint", 4, "int8")
    count = 8 if out == "float16" else 16

    @T.prim_func
    def main(P: T.Tensor((128, count // 2), "int8"), O: T.Tensor((128, count), out)):
        with T.Kernel(1, threads=128):
            T.import_source(made["c_source"])
            packed = T.alloc_local((count // 2,), "int8")
            decoded = T.alloc_local((count,), out)
            t = T.get_thread_binding()
            for i in T.vectorized(count // 2):
                packed[i] = P[t, i]
            T.call_extern("handle", made["func_name"], T.address_of(packed[0]), T.address_of(decoded[0]))
            for i in T.vectorized(count):
                O[t, i] = decoded[i]

    kernel = tilelang.compile(main, out_idx=[1], target="cuda")
    assert made["func_name"] in kernel.get_kernel_source()
