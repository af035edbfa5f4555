# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows on values, warps and arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilelang.sim.machine import Gang, Pointer
from tilelang.sim.registers import read_registers, view_rows, write_registers
from tilelang.sim.shadow import WARP
from tilelang.sim.table import meaning
from tilelang.sim.values import cast, np_dtype, trunc_div

__all__: list[str] = []

_BF16, _F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


def _warps(G: Gang, x: Any, dtype: np.dtype | None = None) -> np.ndarray:
    """x as `[warp, lane]`."""
    return np.broadcast_to(np.asarray(x, dtype) if dtype is not None else np.asarray(x), (G.T,)).reshape(-1, WARP)


def _together(G: Gang, m: np.ndarray, site: int, what: str, lanes: Any = None) -> None:
    """All threads of each warp are here, or those that `lanes` names."""
    if lanes is None:
        G.converged(m, site, what)
    else:
        G.converged_part(m, site, what, lanes)


# --- shuffles and votes
@meaning("uniform")
def uniform(G: Gang, m: np.ndarray, site: int, x: Any) -> Any:
    _together(G, m, site, "uniform (a shuffle)")
    if not isinstance(x, np.ndarray):
        return x
    return np.repeat(_warps(G, x)[:, 0], WARP)


@meaning("keep")
def keep(G: Gang, m: np.ndarray, site: int, x: Any, dtype: str) -> Any:
    return x


def _shuffle(
    G: Gang, m: np.ndarray, site: int, x: Any, source: np.ndarray, inside: np.ndarray, dtype: str, lanes: Any = None
) -> np.ndarray:
    """source: lane read by each lane `[warp, lane]`; own value where it is not inside the segment."""
    _together(G, m, site, "a shuffle", lanes)
    rows, own = _warps(G, x, np_dtype(dtype)), np.arange(WARP)
    lane = np.where(inside, source, own)
    return np.take_along_axis(rows, lane, axis=1).reshape(-1)


def _lanes(G: Gang) -> np.ndarray:
    return np.broadcast_to(np.arange(WARP), (G.T // WARP, WARP))


@meaning("shfl_xor")
def shfl_xor(
    G: Gang, m: np.ndarray, site: int, x: Any, mask: Any, lanes: Any = None, *, dtype: str, width: int, part: bool
) -> Any:
    lane = _lanes(G)
    source = lane ^ _warps(G, mask)
    return _shuffle(G, m, site, x, source, source // width <= lane // width, dtype, lanes)


@meaning("shfl_down")
def shfl_down(
    G: Gang, m: np.ndarray, site: int, x: Any, delta: Any, lanes: Any = None, *, dtype: str, width: int, part: bool
) -> Any:
    lane = _lanes(G)
    source = lane + _warps(G, delta)
    return _shuffle(G, m, site, x, source, source // width == lane // width, dtype, lanes)


@meaning("shfl_up")
def shfl_up(
    G: Gang, m: np.ndarray, site: int, x: Any, delta: Any, lanes: Any = None, *, dtype: str, width: int, part: bool
) -> Any:
    lane = _lanes(G)
    source = lane - _warps(G, delta)
    return _shuffle(G, m, site, x, source, (source >= 0) & (source // width == lane // width), dtype, lanes)


@meaning("shfl_idx")
def shfl_idx(
    G: Gang, m: np.ndarray, site: int, x: Any, lane: Any, lanes: Any = None, *, dtype: str, width: int, part: bool
) -> Any:
    own = _lanes(G)
    source = own // width * width + _warps(G, lane) % width
    return _shuffle(G, m, site, x, source, np.ones_like(source, bool), dtype, lanes)


def _votes(G: Gang, m: np.ndarray, site: int, p: Any, what: str, lanes: Any = None) -> np.ndarray:
    _together(G, m, site, what, lanes)
    return _warps(G, np.asarray(p, bool) & m)


@meaning("vote_any")
def vote_any(G: Gang, m: np.ndarray, site: int, p: Any, lanes: Any = None, *, part: bool = False) -> Any:
    return np.repeat(_votes(G, m, site, p, "a vote", lanes).any(1), WARP)


@meaning("any_nan")
def any_nan(G: Gang, m: np.ndarray, site: int, a: Any, b: Any) -> Any:
    return vote_any(G, m, site, np.broadcast_to(np.isnan(a) | np.isnan(b), (G.T,))).astype(np.int32)


@meaning("vote_all")
def vote_all(G: Gang, m: np.ndarray, site: int, p: Any, lanes: Any = None, *, part: bool) -> Any:
    return np.repeat((_votes(G, m, site, p, "a vote", lanes) | ~_warps(G, m)).all(1), WARP)


def _bits(rows: np.ndarray) -> np.ndarray:
    return np.repeat(np.packbits(rows, axis=1, bitorder="little").view(np.uint32).reshape(-1), WARP)


@meaning("ballot")
def ballot(G: Gang, m: np.ndarray, site: int, p: Any, lanes: Any = None, *, part: bool) -> Any:
    return _bits(_votes(G, m, site, p, "a ballot", lanes))


@meaning("match_any")
def match_any(G: Gang, m: np.ndarray, site: int, x: Any, lanes: Any = None, *, dtype: str, part: bool) -> Any:
    _together(G, m, site, "a match", lanes)
    values = _warps(G, x, np_dtype(dtype))
    codes = np.ascontiguousarray(values).view(np.dtype(f"uint{8 * values.itemsize}"))
    same = (codes[:, :, None] == codes[:, None, :]) & _warps(G, m)[:, None, :]
    return np.packbits(same, axis=2, bitorder="little").view(np.uint32).reshape(-1)


@meaning("match_all")
def match_all(G: Gang, m: np.ndarray, site: int, x: Any, lanes: Any = None, *, dtype: str, part: bool) -> Any:
    mine, every = match_any(G, m, site, x, lanes, dtype=dtype, part=part), _bits(_warps(G, m))
    same = ((mine == every) | ~m).reshape(-1, WARP).all(1)
    return np.where(np.repeat(same, WARP), every, np.uint32(0))


@meaning("activemask")
def activemask(G: Gang, m: np.ndarray, site: int) -> Any:
    return _bits(_warps(G, m))


def _reduction(name: str, ufunc: Any, neutral: Any) -> None:
    @meaning(f"redux_{name}")
    def redux(G: Gang, m: np.ndarray, site: int, x: Any, dtype: str) -> Any:
        _together(G, m, site, "redux")
        dt = np_dtype(dtype)
        fill = dt.type(neutral(np.iinfo(dt)) if callable(neutral) else neutral)
        rows = np.where(_warps(G, m), _warps(G, x, dt), fill)
        return np.repeat(ufunc.reduce(rows, axis=1).astype(dt), WARP)


for _name, _ufunc, _neutral in (
    ("add", np.add, 0),
    ("min", np.minimum, lambda i: i.max),
    ("max", np.maximum, lambda i: i.min),
    ("or", np.bitwise_or, 0),
    ("xor", np.bitwise_xor, 0),
):
    _reduction(_name, _ufunc, _neutral)
_reduction("and", np.bitwise_and, lambda i: -1 if i.min < 0 else i.max)


@meaning("elect_one")
def elect_one(G: Gang, m: np.ndarray, site: int) -> Any:
    _together(G, m, site, "elect_one")
    rows = _warps(G, m)
    return (rows & (np.cumsum(rows, axis=1) == 1)).reshape(-1)


# --- special registers and ordering points
@meaning("lane_id")
def lane_id(G: Gang, m: np.ndarray, site: int) -> Any:
    return G.tid % WARP


@meaning("cluster_rank")
def cluster_rank(G: Gang, m: np.ndarray, site: int) -> Any:
    return G.rank


@meaning("cluster_size")
def cluster_size(G: Gang, m: np.ndarray, site: int) -> Any:
    return len(G.cta.blocks)


@meaning("sm_id")
def sm_id(G: Gang, m: np.ndarray, site: int) -> Any:
    return 0


@meaning("clock", "global_timer")
def clock(G: Gang, m: np.ndarray, site: int) -> Any:
    return np.full(G.T, G.cta.world.steps, np.uint64)


@meaning("nanosleep")
def nanosleep(G: Gang, m: np.ndarray, site: int, ns: Any) -> Any:
    yield G.spin(site)


@meaning("reg_fence")
def reg_fence(G: Gang, m: np.ndarray, site: int, regs: str, **_: Any) -> None:
    """Orders register uses for the compiler; nothing happens."""


@meaning("pin")
def pin(G: Gang, m: np.ndarray, site: int, x: Any) -> None:
    """An ordering point for the compiler; nothing happens."""


@meaning("settle")
def settle(G: Gang, m: np.ndarray, site: int, value: Any) -> None:
    """An ordering point of the warp for the compiler; nothing happens."""
    G.converged(m, site, "settle")


# --- arithmetic
def _f32(x: Any) -> Any:
    return np.asarray(x, np.float32)


def _flush(x: Any) -> Any:
    """Subnormal float32 values are zero (.ftz)."""
    x = _f32(x)
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def _unary(name: str, f: Any, ftz: bool = True) -> None:
    @meaning(name)
    def run(G: Gang, m: np.ndarray, site: int, x: Any) -> Any:
        return _flush(f(_flush(x))) if ftz else f(_f32(x))


for _name, _f in (
    ("ex2", np.exp2),
    ("lg2", np.log2),
    ("rcp", lambda x: np.float32(1) / x),
    ("rsqrt", lambda x: np.float32(1) / np.sqrt(x)),
    ("sqrt_approx", np.sqrt),
    ("sin_approx", np.sin),
    ("cos_approx", np.cos),
):
    _unary(_name, _f)
_unary("tanh_approx", np.tanh, ftz=False)


@meaning("tf32")
def tf32(G: Gang, m: np.ndarray, site: int, x: Any) -> Any:
    """Round to nearest, ties away, to 10 mantissa bits."""
    bits = np.ascontiguousarray(_f32(x)).view(np.uint32)
    return np.where(
        np.isfinite(_f32(x)), ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32), _f32(x)
    )


def _fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of 16-bit floats as a float32 that rounds to the nearest number of their types, as the exact sum would:
    cut off, with the last bit set where something was (rounded to odd)."""
    a, b, c = (np.asarray(v).astype(np.float64) for v in (a, b, c))
    product = a * b  # exact
    total = product + c
    part = total - product
    missing = (product - (total - part)) + (c - part)  # what `total` lacks (Knuth's TwoSum)
    near = total.astype(np.float32)
    bits = near.view(np.uint32)
    over, lacks = near - total, (near != total) | (missing != 0)
    outside = np.where(over != 0, over, -missing) * np.sign(total) > 0
    return np.where(np.isfinite(total) & lacks, bits - outside.astype(np.uint32) | np.uint32(1), bits).view(np.float32)


@meaning("fma")
def fma(G: Gang, m: np.ndarray, site: int, a: Any, b: Any, c: Any, dtype: str = "float32") -> Any:
    if dtype != "float32":
        return cast(_fused(a, b, c), np_dtype(dtype))
    return (np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)).astype(np.float32)


@meaning("max3")
def max3(G: Gang, m: np.ndarray, site: int, a: Any, b: Any, c: Any) -> Any:
    return np.fmax(np.fmax(_f32(a), _f32(b)), _f32(c))


@meaning("max_nan")
def max_nan(G: Gang, m: np.ndarray, site: int, a: Any, b: Any) -> Any:
    return np.maximum(_f32(a), _f32(b))


@meaning("min_nan")
def min_nan(G: Gang, m: np.ndarray, site: int, a: Any, b: Any) -> Any:
    return np.minimum(_f32(a), _f32(b))


@meaning("div_approx")
def div_approx(G: Gang, m: np.ndarray, site: int, a: Any, b: Any) -> Any:
    return _flush(trunc_div(_flush(a), _flush(b)))


@meaning("div_full")
def div_full(G: Gang, m: np.ndarray, site: int, a: Any, b: Any) -> Any:
    return trunc_div(_f32(a), _f32(b))


@meaning("div_shared")
def div_shared(G: Gang, m: np.ndarray, site: int, a: Any, b: Any, fits: Pointer, zeros: bool) -> Any:
    """The quotient is that of a division; `fits` is cleared where the device could not promise that."""
    a, b = _f32(a), _f32(b)
    quotient = trunc_div(a, b)
    with np.errstate(invalid="ignore"):
        good = (b >= 2.0**-60) & (b <= 2.0**100) & ((np.abs(quotient) >= 2.0**-40) | (zeros & (a == 0)))
    old = read_registers(G, fits, 1, np.dtype(np.int32), m, site)
    write_registers(G, fits, np.broadcast_to(old & np.asarray(good, np.int32), (1, G.T)), m, site)
    return quotient


def _pack16(lo: Any, hi: Any, dtype: np.dtype) -> Any:
    low, high = (np.asarray(cast(_f32(x), dtype)).view(np.uint16).astype(np.uint32) for x in (lo, hi))
    return low | high << np.uint32(16)


def _unpack16(x: Any, dtype: np.dtype) -> tuple[Any, Any]:
    x = np.asarray(x, np.uint32)
    return tuple(
        np.ascontiguousarray(part.astype(np.uint16)).view(dtype).astype(np.float32)
        for part in (x & np.uint32(0xFFFF), x >> np.uint32(16))
    )  # type: ignore[return-value]


@meaning("pack_bf16x2")
def pack_bf16x2(G: Gang, m: np.ndarray, site: int, lo: Any, hi: Any) -> Any:
    return _pack16(lo, hi, _BF16)


@meaning("pack_f16x2")
def pack_f16x2(G: Gang, m: np.ndarray, site: int, lo: Any, hi: Any) -> Any:
    return _pack16(lo, hi, np.dtype(np.float16))


def _pack8(name: str, dtype: str) -> None:
    top = float(ml_dtypes.finfo(np_dtype(dtype)).max)  # cvt.satfinite

    @meaning(name)
    def run(G: Gang, m: np.ndarray, site: int, **x: Any) -> Any:
        values = [np.clip(_f32(x[f"x{i}"]), -top, top) for i in range(4)]
        codes = [np.asarray(cast(v, np_dtype(dtype))).view(np.uint8).astype(np.uint32) for v in values]
        parts = [code << np.uint32(8 * i) for i, code in enumerate(codes)]
        return parts[0] | parts[1] | parts[2] | parts[3]


_pack8("pack_e4m3x4", "float8_e4m3fn")
_pack8("pack_e5m2x4", "float8_e5m2")


def _convert8(name: str, dtype: str) -> None:
    top = float(ml_dtypes.finfo(np_dtype(dtype)).max)  # cvt.satfinite

    @meaning(name)
    def run(G: Gang, m: np.ndarray, site: int, dst: Pointer, **x: Any) -> None:
        values = [np.clip(_f32(x[f"x{i}"]), -top, top) for i in range(4)]
        rows = np.stack([np.broadcast_to(np.asarray(cast(v, np_dtype(dtype))), (G.T,)) for v in values])
        write_registers(G, dst, view_rows(rows, np.dtype(np.uint32)), m, site)


_convert8("convert_e4m3x4", "float8_e4m3fn")
_convert8("convert_e5m2x4", "float8_e5m2")


def _packed(name: str, dtype: np.dtype, f: Any) -> None:
    @meaning(name)
    def run(G: Gang, m: np.ndarray, site: int, **x: Any) -> Any:
        halves = zip(*(_unpack16(v, dtype) for v in x.values()), strict=True)
        lo, hi = (f(*h) for h in halves)
        return _pack16(lo, hi, dtype)


for _suffix, _dtype in (("bf16x2", _BF16), ("f16x2", np.dtype(np.float16))):
    _packed(f"add2_{_suffix}", _dtype, lambda a, b: a + b)
    _packed(f"sub2_{_suffix}", _dtype, lambda a, b: a - b)
    _packed(f"mul2_{_suffix}", _dtype, lambda a, b: a * b)
    _packed(f"fma2_{_suffix}", _dtype, _fused)
    _packed(f"min2_{_suffix}", _dtype, np.fmin)
    _packed(f"max2_{_suffix}", _dtype, np.fmax)
    _packed(f"abs2_{_suffix}", _dtype, np.abs)


@meaning("held")
def held(G: Gang, m: np.ndarray, site: int, x: Any) -> Any:
    return x


@meaning("permute_bytes")
def permute_bytes(G: Gang, m: np.ndarray, site: int, a: Any, b: Any, selector: Any) -> Any:
    words = np.asarray(a, np.uint64) | np.asarray(b, np.uint64) << np.uint64(32)
    out: Any = np.uint64(0)
    for i in range(4):
        nibble = np.asarray(selector, np.uint64) >> np.uint64(4 * i) & np.uint64(15)
        byte = words >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = byte >> np.uint64(7) & np.uint64(1)
        byte = np.where(nibble >= 8, sign * np.uint64(255), byte)  # the sign of the byte, eight times
        out = out | byte << np.uint64(8 * i)
    return np.asarray(out).astype(np.uint32)


def _dot4(name: str, small: Any, wide: Any) -> None:
    @meaning(name)
    def run(G: Gang, m: np.ndarray, site: int, a: Any, b: Any, c: Any) -> Any:
        total = np.asarray(c, wide)
        for i in range(4):
            x, y = ((np.asarray(v, wide) >> wide(8 * i)).astype(small).astype(wide) for v in (a, b))
            total = total + x * y
        return total


_dot4("dp4a", np.int8, np.int32)
_dot4("dp4a_u", np.uint8, np.uint32)


@meaning("trap")
def trap(G: Gang, m: np.ndarray, site: int) -> None:
    G.cta.trap("trap", f"{G.cta.does(G.active(m), 'execute')} a trap", site)
