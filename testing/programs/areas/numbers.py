# SPDX-License-Identifier: Apache-2.0
"""Numbers: casts, constants, shifts, division, comparisons, mathematics, bits; the same as torch and numpy give."""

from __future__ import annotations

import math

import numpy as np
import torch
from witness import EVERYWHERE, ints, out, program, randn, run

import tilelang.language as T
from tilelang.quantize import _tir_packed_to_unsigned_convert

INF, NAN = math.inf, math.nan
EDGES = [0.0, -0.0, INF, -INF, NAN, 1e5, -1e5, 65504.0, 65520.0, 57344.0, 61439.0, 1e-7, 3e-6, -2e-5, 1.0, 1.125,
         1.375, 0.1, 6e-8, 3e-8, 1e-40, 448.0, 240.0, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10]  # fmt: skip


def map_of(make, src, dst, n, threads=64):
    """A kernel that stores make(x) for every x of a vector."""

    @T.prim_func
    def main(A: T.Tensor((n,), src), O: T.Tensor((n,), dst)):
        with T.Kernel(1, threads=threads):
            for i in T.Parallel(n):
                O[i] = make(A[i])

    return main


@program(dst=("float16", "bfloat16", "float8_e5m2"))
def rounding_at_the_edges(dst):
    """Casts from float32 round to nearest even and keep infinities, NaN and subnormals."""
    a = torch.tensor(EDGES)
    return run(map_of(lambda x: T.cast(x, dst), "float32", dst, len(a)), a, out(a.to(getattr(torch, dst))))


@program()
def rounding_to_e4m3():
    """float8_e4m3fn has no infinity: values in range are rounded as torch does."""
    a = torch.cat([torch.linspace(-448, 448, 250), torch.tensor([2.0**-9, 2.0**-10, 1.6 * 2.0**-10, -0.0, NAN, 0.3])])
    make = lambda x: T.cast(x, "float8_e4m3fn")
    return run(map_of(make, "float32", "float8_e4m3fn", len(a)), a, out(a.to(torch.float8_e4m3fn)))


@program(src=("float8_e4m3fn", "float8_e5m2"), dst=("float32", "float16", "bfloat16"))
def all_codes_of_a_byte(src, dst):
    """Every one of the 256 codes is read exactly."""
    a = torch.arange(256).to(torch.uint8).view(getattr(torch, src))
    return run(map_of(lambda x: T.cast(x, dst), src, dst, 256), a, out(a.to(getattr(torch, dst))))


@program(
    pair=(
        ("int32", "int8"),
        ("int32", "uint8"),
        ("int64", "int32"),
        ("uint8", "int8"),
        ("int8", "int64"),
        ("int16", "uint16"),
    )
)
def whole_numbers_wrap(pair):
    """Casts between whole numbers keep the low bits and the sign of the target."""
    src, dst = pair
    a = ints(80, low=0 if src == "uint8" else -300, high=256 if src == "uint8" else 300).to(getattr(torch, src))
    return run(map_of(lambda x: T.cast(x, dst), src, dst, 80), a, out(a.to(getattr(torch, dst))))


@program(dst=("int32", "int8", "int64", "bool"))
def fractions_are_cut(dst):
    """A cast to whole numbers goes towards zero; to bool it asks for anything but zero."""
    a = torch.tensor([0.0, 0.4, 0.9, -0.9, 1.5, -1.5, 99.99, -99.99, 3.0])
    return run(map_of(lambda x: T.cast(x, dst), "float32", dst, 9), a, out(a.to(getattr(torch, dst))))


@program(dtype=("uint8", "int8", "uint16", "int16", "int32"), threads=(32, 200))
def shifts_at_their_own_width(dtype, threads):
    """A shift of a narrow number wraps at its own width."""
    make = lambda x: T.shift_right(T.shift_left(x, T.cast(4, dtype)), T.cast(4, dtype))
    bits = np.dtype(dtype).itemsize * 8
    a = np.arange(256).astype(dtype) if bits == 8 else np.random.default_rng(0).integers(-3e4, 3e4, 256).astype(dtype)
    want = ((a.astype("int64") << 4).astype(dtype) >> np.array(4, dtype)).astype(dtype)
    return run(map_of(make, dtype, dtype, 256, threads), torch.from_numpy(a.copy()), out(torch.from_numpy(want)))


@program(dtype=("int8", "uint8", "int16"))
def narrow_sums_wrap(dtype):
    """Sums, differences and products of narrow numbers, stored in their type, wrap."""

    @T.prim_func
    def main(A: T.Tensor((96,), dtype), B: T.Tensor((96,), dtype), O: T.Tensor((3, 96), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(96):
                O[0, i] = A[i] + B[i]
                O[1, i] = A[i] - B[i]
                O[2, i] = A[i] * B[i]

    a, b = (torch.randint(-30000, 30000, (96,)).to(getattr(torch, dtype)) for _ in "ab")
    return run(main, a, b, out(torch.stack([a + b, a - b, a * b])))


@program(dtype=("int32", "int64", "int8"))
def division_and_remainder(dtype):
    """// and % go down, truncdiv and truncmod go towards zero."""

    @T.prim_func
    def main(
        A: T.Tensor((90,), dtype), B: T.Tensor((90,), dtype), O: T.Tensor((4, 90), dtype), C: T.Tensor((3, 90), dtype)
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(90):
                O[0, i] = A[i] // B[i]
                O[1, i] = A[i] % B[i]
                O[2, i] = T.truncdiv(A[i], B[i])
                O[3, i] = T.truncmod(A[i], B[i])
                C[0, i] = A[i] // 7
                C[1, i] = A[i] % 8
                C[2, i] = T.ceildiv(A[i], 5)

    a, b = ints(90, low=-60, high=60, dtype=dtype), ints(90, low=1, high=9, dtype=dtype)
    b[::2] *= -1
    div = lambda x, y, mode: torch.div(x, y, rounding_mode=mode)
    trunc = div(a, b, "trunc")
    want = torch.stack([div(a, b, "floor"), torch.remainder(a, b), trunc, a - trunc * b])
    five = torch.full_like(a, 5)
    others = torch.stack(
        [div(a, torch.full_like(a, 7), "floor"), torch.remainder(a, torch.full_like(a, 8)), div(a + 4, five, "floor")]
    )
    return run(main, a, b, out(want), out(others))


@program(value=(1e-40, 1e-30, 3.4e38, 16777217.0, 0.1, -0.0), dtype=("float32",))
def constants_keep_their_bits(value, dtype):
    """A number in the program is the nearest of its type, subnormals and the sign of zero included."""

    @T.prim_func
    def main(O: T.Tensor((64,), "float32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[i] = T.cast(value, dtype)
                B[i] = T.reinterpret(T.float32(value), "int32")

    want = torch.full((64,), value, dtype=torch.float32)
    return run(main, out(want, rtol=0.0, atol=0.0), out(want.view(torch.int32)))


def zero_times(x):
    return x * 0.0


@program(dtype=("float16", "bfloat16", "float32", "float64"))
def zeros_and_ones_are_numbers(dtype):
    """x * 0 is NaN for infinity, x + 0 forgets the sign of zero: no identity of real numbers is taken for granted."""

    @T.prim_func
    def main(A: T.Tensor((8,), dtype), O: T.Tensor((9, 8), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                O[0, i] = A[i] * 0.0
                O[1, i] = zero_times(A[i])
                O[2, i] = 0 * A[i]
                O[3, i] = A[i] + 0.0
                O[4, i] = 0.0 - A[i]
                O[5, i] = 0.0 / A[i]
                O[6, i] = A[i] / 0.0
                O[7, i] = A[i] - A[i]
                O[8, i] = A[i]
                O[8, i] *= 0.0

    a = torch.tensor([1, -2, 0.0, -0.0, float("inf"), -float("inf"), float("nan"), 0.5]).to(getattr(torch, dtype))
    zero = torch.zeros((), dtype=a.dtype)
    want = [a * zero, a * zero, a * zero, a + zero, zero - a, zero / a, a / zero, a - a, a * zero]
    return run(main, a, out(torch.stack(want)))


@program()
def sign_of_zero():
    """What is added to, subtracted from or multiplied with a zero has the sign that IEEE 754 gives it."""

    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), O: T.Tensor((5, 4), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                O[0, i] = T.reinterpret(A[i] * 0.0, "int32")
                O[1, i] = T.reinterpret(A[i] + 0.0, "int32")
                O[2, i] = T.reinterpret(0.0 - A[i], "int32")
                O[3, i] = T.reinterpret(-A[i], "int32")
                O[4, i] = T.reinterpret(A[i] * -1, "int32")

    a = torch.tensor([0.0, -0.0, 1.0, -1.0])
    want = torch.stack([a * 0.0, a + 0.0, 0.0 - a, -a, a * -1])
    return run(main, a, out(want.view(torch.int32)))


@program()
def bits_of_constants():
    """reinterpret of a number in the program, zero and NaN among them, in every direction."""
    inf, nan = float("inf"), float("nan")

    @T.prim_func
    def main(
        I: T.Tensor((4,), "int32"),
        S: T.Tensor((4,), "int16"),
        F: T.Tensor((4,), "float32"),
        H: T.Tensor((2,), "float16"),
        B: T.Tensor((2,), "bfloat16"),
        D: T.Tensor((2,), "float64"),
        U: T.Tensor((2,), "uint8"),
    ):
        with T.Kernel(1, threads=32):
            I[0] = T.reinterpret(0.0, "int32")
            I[1] = T.reinterpret(-0.0, "int32")
            I[2] = T.reinterpret(T.infinity("float32"), "int32")
            I[3] = T.reinterpret(T.float32(nan), "int32")
            S[0] = T.reinterpret(T.float16(0), "int16")
            S[1] = T.reinterpret(T.float16(-1.5), "int16")
            S[2] = T.reinterpret(T.bfloat16(-0.0), "int16")
            S[3] = T.reinterpret(T.uint16(65535), "int16")
            F[0] = T.reinterpret(0, "float32")
            F[1] = T.reinterpret(0x7FC00000, "float32")
            F[2] = T.reinterpret(T.uint32(0xFF800000), "float32")
            F[3] = T.reinterpret(1, "float32")
            H[0] = T.reinterpret(T.int16(0x7E00), "float16")
            H[1] = T.reinterpret(T.int16(0x3C00), "float16")
            B[0] = T.reinterpret(T.int16(0x7FC0), "bfloat16")
            B[1] = T.reinterpret(T.int16(0), "bfloat16")
            D[0] = T.reinterpret(T.int64(0), "float64")
            D[1] = T.reinterpret(T.int64(0x7FF8000000000000), "float64")
            U[0] = T.reinterpret(T.float8_e5m2(2.0), "uint8")
            U[1] = T.reinterpret(T.float8_e4m3fn(0.0), "uint8")

    f16, bf16 = torch.float16, torch.bfloat16
    shorts = [torch.tensor([0.0, -1.5], dtype=f16), torch.tensor([-0.0], dtype=bf16), torch.tensor([-1]).short()]
    return run(
        main,
        out(torch.tensor([0.0, -0.0, inf, nan]).view(torch.int32)),
        out(torch.cat([t.view(torch.int16) for t in shorts])),
        out(torch.tensor([0.0, nan, -inf, 2.0**-149]), atol=0.0),
        out(torch.tensor([nan, 1.0], dtype=f16)),
        out(torch.tensor([nan, 0.0], dtype=bf16)),
        out(torch.tensor([0.0, nan], dtype=torch.float64)),
        out(torch.tensor([64, 0], dtype=torch.uint8)),
    )


@program(dtype=("float16", "bfloat16", "float32", "float64"))
def limits_of_a_type(dtype):
    """T.infinity, T.max_value and T.min_value; NaN is unequal to itself."""

    @T.prim_func
    def main(A: T.Tensor((4,), dtype), O: T.Tensor((4,), dtype), U: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            O[0] = T.infinity(dtype)
            O[1] = -T.infinity(dtype)
            O[2] = T.max_value(dtype)
            O[3] = T.min_value(dtype)
            for i in T.Parallel(4):
                U[i] = 0
                if A[i] != A[i]:
                    U[i] = 1
                if T.isnan(A[i]):
                    U[i] += 2
                if T.isinf(A[i]):
                    U[i] += 4
                if T.isfinite(A[i]):
                    U[i] += 8

    t = getattr(torch, dtype)
    a = torch.tensor([1.0, NAN, INF, -INF]).to(t)
    want = torch.tensor([INF, -INF, torch.finfo(t).max, torch.finfo(t).min], dtype=torch.float64).to(t)
    return run(main, a, out(want), out(torch.tensor([8, 3, 4, 4]).int()))


@program(dtype=("float32", "float16", "bfloat16"))
def clamps_and_extremes(dtype):
    """clamp, min and max; what NaN does in them."""
    a = randn(60, dtype=dtype) * 3
    a[7], a[8], a[9] = NAN, INF, -INF

    @T.prim_func
    def main(A: T.Tensor((60,), dtype), C: T.Tensor((60,), dtype), M: T.Tensor((60,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(60):
                C[i] = T.clamp(A[i], -2.0, 3.0)
                M[i] = T.max(T.min(A[i], 1), -1)

    return run(
        main, a, out(a.clamp(-2, 3)), out(torch.where(a.isnan(), torch.tensor(1.0), a.clamp(-1, 1).float()).to(a.dtype))
    )


UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2, "log1p": torch.log1p,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "sin": torch.sin,
    "cos": torch.cos, "erf": torch.erf, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "abs": torch.abs, "log10": torch.log10, "tan": torch.tan, "atan": torch.atan, "sinh": torch.sinh,
}  # fmt: skip


@program(names=(tuple(UNARY)[:10], tuple(UNARY)[10:]), dtype=("float32", "float16", "float64"))
def functions_of_one_number(names, dtype):
    """The functions of mathematics, for each width of float."""

    @T.prim_func
    def main(A: T.Tensor((40,), dtype), O: T.Tensor((len(names), 40), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(40):
                for k, name in enumerate(names):
                    O[k, i] = getattr(T, name)(A[i])

    a = (torch.rand(40) * 3 + 0.1).to(getattr(torch, dtype))
    want = torch.stack([UNARY[n](a.double()) for n in names]).to(a.dtype)
    near = {"float32": 3e-6, "float16": 2e-3, "float64": 1e-12}[dtype]
    return run(main, a, out(want, rtol=near, atol=near))


@program()
def functions_of_two_numbers():
    """pow, fmod, atan2, copysign, and rounding to whole numbers."""

    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), B: T.Tensor((40,), "float32"), O: T.Tensor((6, 40), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(40):
                O[0, i] = T.pow(T.abs(A[i]) + 0.5, B[i])
                O[1, i] = T.fmod(A[i], B[i])
                O[2, i] = T.atan2(A[i], B[i])
                O[3, i] = T.copysign(A[i], B[i])
                O[4, i] = T.nearbyint(A[i] * 2)
                O[5, i] = T.round(A[i] * 4)

    a, b = randn(40), randn(40)
    a[:4] = torch.tensor([0.25, 0.75, -0.25, 1.25])  # halves, once multiplied
    away = torch.sign(a * 4) * torch.floor((a * 4).abs() + 0.5)
    want = [(a.abs() + 0.5).pow(b), torch.fmod(a, b), torch.atan2(a, b), torch.copysign(a, b), (a * 2).round(), away]
    return run(main, a, b, out(torch.stack(want), rtol=1e-5, atol=1e-5))


@program()
def bits_of_a_float():
    """reinterpret, masks and shifts: a mantissa taken apart and put together."""

    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"),
        E: T.Tensor((64,), "int32"),
        O: T.Tensor((64,), "float32"),
        P: T.Tensor((64,), "uint32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                b = T.reinterpret(A[i], "uint32")
                E[i] = T.cast((b >> 23) & 0xFF, "int32") - 127
                O[i] = T.reinterpret((b & 0x807FFFFF) | 0x3F800000, "float32")
                P[i] = T.popcount(b ^ 0xFFFFFFFF)

    a = randn(64)
    b = a.view(torch.int32).long() & 0xFFFFFFFF
    mantissa = ((b & 0x807FFFFF) | 0x3F800000).to(torch.uint32).view(torch.float32)
    ones = torch.tensor([32 - bin(int(x)).count("1") for x in b]).to(torch.uint32)
    return run(main, a, out(((b >> 23) & 0xFF).int() - 127), out(mantissa), out(ones))


@program()
def nibbles_of_a_byte():
    """Two 4-bit numbers in a byte: unpacked with their sign, scaled, packed again."""

    @T.prim_func
    def main(
        Q: T.Tensor((16, 20), "uint8"),
        S: T.Tensor((16,), "float32"),
        O: T.Tensor((16, 40), "float16"),
        R: T.Tensor((16, 20), "uint8"),
    ):
        with T.Kernel(1, threads=96):
            for i, j in T.Parallel(16, 40):
                u = (Q[i, j // 2] >> T.cast((j % 2) * 4, "uint8")) & T.uint8(15)
                O[i, j] = T.cast((T.cast(u, "float32") - 8.0) * S[i], "float16")
            for i, j in T.Parallel(16, 20):
                R[i, j] = (Q[i, j] << T.uint8(4)) | (Q[i, j] >> T.uint8(4))

    q, s = torch.randint(0, 256, (16, 20)).to(torch.uint8), ints(16, low=1, high=5).float()
    u = torch.stack([q & 15, q >> 4], -1).reshape(16, 40)
    return run(main, q, s, out(((u.float() - 8) * s.view(-1, 1)).half()), out(((q & 15) << 4) | (q >> 4)))


@program()
def chosen_without_looking():
    """if_then_else reads only the side that it takes; Select and comparisons chain."""

    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), O: T.Tensor((64,), "float32"), P: T.Tensor((40,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[i] = T.if_then_else(i < 40, A[T.min(i, 39)], -1.0)
            for i in T.Parallel(40):
                P[i] = T.Select(-0.5 < A[i] < 0.5, 1, T.Select(A[i] > 0, 2, 3))

    a = randn(40)
    near = torch.where((a > -0.5) & (a < 0.5), 1, torch.where(a > 0, 2, 3)).int()
    return run(main, a, out(torch.cat([a, torch.full((24,), -1.0)])), out(near))


@program()
def truth_values():
    """and, or, not on buffers of bool; bool as a number; comparisons of bool."""

    @T.prim_func
    def main(
        A: T.Tensor((32,), "bool"),
        B: T.Tensor((32,), "bool"),
        O: T.Tensor((5, 32), "bool"),
        N: T.Tensor((32,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                O[0, i] = A[i] and B[i]
                O[1, i] = A[i] or B[i]
                O[2, i] = not A[i]
                O[3, i] = A[i] == B[i]
                O[4, i] = A[i] != B[i]
                N[i] = T.cast(A[i], "int32") * 2 + T.cast(B[i], "int32")

    a, b = torch.rand(32) > 0.5, torch.rand(32) > 0.5
    return run(main, a, b, out(torch.stack([a & b, a | b, ~a, a == b, a != b])), out(a.int() * 2 + b.int()))


@program(dtype=("float16", "bfloat16"))
def half_arithmetic_rounds_each_step(dtype):
    """Expressions of half types are rounded after every operation."""

    @T.prim_func
    def main(A: T.Tensor((80,), dtype), B: T.Tensor((80,), dtype), O: T.Tensor((80,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(80):
                O[i] = (A[i] * B[i] + A[i]) - B[i] / T.cast(3.0, dtype)

    a, b = randn(80, dtype=dtype), randn(80, dtype=dtype)
    want = (a * b + a) - b / torch.tensor(3.0, dtype=a.dtype)
    return run(main, a, b, out(want, rtol=0.02, atol=0.02))


@program()
def mixed_widths():
    """A narrow operand beside a wide one is widened; constants take the type beside them."""

    @T.prim_func
    def main(
        A: T.Tensor((40,), "float16"), B: T.Tensor((40,), "float32"), I: T.Tensor((40,), "int8"),
        J: T.Tensor((40,), "int64"), O: T.Tensor((40,), "float32"), P: T.Tensor((40,), "int64"),
        Q: T.Tensor((40,), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=32):
            for i in T.Parallel(40):
                O[i] = A[i] * 2 + B[i]
                P[i] = I[i] * 3 + J[i] * 1000000007
                Q[i] = I[i] + 0.5

    a, b, i, j = ints(40, dtype="float16"), randn(40), ints(40, dtype="int8"), ints(40, dtype="int64")
    return run(main, a, b, i, j, out(a.float() * 2 + b), out(i.long() * 3 + j * 1000000007), out(i.float() + 0.5))


@program()
def offsets_of_sixty_four_bits():
    """Arithmetic on int64 indices and values past 2^32."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int64"), O: T.Tensor((64,), "int64"), P: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                big = T.cast(i, "int64") * 3000000000 + A[i]
                O[i] = big
                P[i] = T.cast(big % 97, "int32")

    a = ints(64, dtype="int64")
    big = torch.arange(64) * 3000000000 + a
    return run(main, a, out(big), out(torch.remainder(big, 97).int()))


@program(devices=EVERYWHERE, dtype=("int4", "uint4", "float4_e2m1fn"))
def four_bits_in_passing(dtype):
    """A value goes through a type of four bits that no buffer has: integers wrap, floats are rounded and saturate."""

    @T.prim_func
    def main(A: T.Tensor((40,), "int32"), O: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(40):
                O[i] = T.cast(T.cast(A[i], dtype), "float32")

    a = torch.arange(40).int() - 20
    near = {-5: -4, 5: 4, -7: -6, 7: 6}
    want = {
        "int4": (a + 8) % 16 - 8,
        "uint4": a % 16,
        "float4_e2m1fn": torch.tensor([near.get(x, max(-6, min(6, x))) for x in a.tolist()]),
    }[dtype]
    return run(main, a, out(want.float()))


@program(devices=EVERYWHERE)
def a_product_within_a_sum_is_rounded_once():
    """Of two products the left one; what T.fmul gives is a value of its own. Equal products do not cancel.

    Rows have numbers of their own: what becomes of a product that two sums share is up to the assembler.
    """
    N = 256

    @T.prim_func
    def main(A: T.Tensor((5, N), "float32"), B: T.Tensor((5, N), "float32"), C: T.Tensor((5, N), "float32"),
             Y: T.Tensor((5, N), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            for i in T.Parallel(N):
                Y[0, i] = A[0, i] * B[0, i] + C[0, i]
            for i in T.Parallel(N):
                Y[1, i] = C[1, i] - A[1, i] * B[1, i]
            for i in T.Parallel(N):
                Y[2, i] = A[2, i] * B[2, i] - B[2, i] * C[2, i]
            for i in T.Parallel(N):
                Y[3, i] = A[3, i] * A[3, i] - T.fmul(A[3, i], A[3, i])
            for i in T.Parallel(N):
                Y[4, i] = T.fmul(A[4, i], B[4, i]) + C[4, i]

    a, b, c = randn(5, N), randn(5, N), randn(5, N)
    A, B, C = a.double(), b.double(), c.double()
    exact, rounded = A * B, lambda x, y: (x * y).double()
    rows = (
        exact[0] + C[0],
        C[1] - exact[1],
        exact[2] - rounded(b, c)[2],
        (A * A - rounded(a, a))[3],
        rounded(a, b)[4] + C[4],
    )
    return run(main, a, b, c, out(torch.stack(rows).float(), rtol=0.0, atol=0.0))


@program(packed=(("int", 8, 4), ("uint", 8, 2), ("int", 32, 4), ("int", 16, 1)))
def packed_integers_are_unpacked(packed):
    """What tilelang.quantize unpacks: the lowest bits come first, and the sign of the storage does not matter."""
    storage, width, bits = packed
    per, N, dtype = width // bits, 64, f"{storage}{width}"

    @T.prim_func
    def main(Q: T.Tensor((N // per,), dtype), O: T.Tensor((N,), "float16")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((N // per,), dtype)
            T.copy(Q, s)
            for i in T.Parallel(N):
                O[i] = _tir_packed_to_unsigned_convert(storage, width)(bits, s[i // per], i % per, dtype="float16")

    values = torch.randint(0, 1 << bits, (N,))
    together = (values.reshape(-1, per) << torch.arange(per) * bits).sum(1)
    return run(main, together.to(getattr(torch, dtype)), out(values.half()))
