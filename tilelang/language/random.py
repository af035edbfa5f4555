# SPDX-License-Identifier: Apache-2.0
"""Random numbers: Philox 4x32 with 10 rounds, the same streams as cuRAND's generator of that name, on every target.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math as _math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.language import errors
from tilelang.language.kernel import current_launch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import cast_to
from tilelang.tir_builder.values import as_expr

__all__ = ["rng_init", "rng_rand", "rng_rand_float"]

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round
_GENERATORS = ("curandStatePhilox4_32_10_t", "philox")


@dataclass(frozen=True)
class _Stream:
    """A generator of each thread, in variables: its key and its place in the stream."""

    seed: Any
    subsequence: Any
    position: Any  # numbers drawn so far


def rng_init(seed: Any, seq: Any = 0, off: Any = 0, generator: str = _GENERATORS[0]) -> None:
    """Start the generator of each thread. Streams of one `seed` differ by `seq`; `off` numbers are skipped."""
    launch = current_launch("rng_init")
    if generator not in _GENERATORS:
        raise errors.BadChoice(what="generator", value=generator, choices=", ".join(_GENERATORS), arg="generator")
    builder = Builder.current("rng_init")
    fresh = list(builder.fresh)
    # Variables, even those that stay: TVM folds constants of unsigned types without wrapping them.
    cells = [builder.alloc_var(name, "uint64") for name in ("seed", "sequence", "position")]
    builder.fresh[:] = fresh
    for cell, value in zip(cells, (seed, seq, off), strict=True):
        builder.store(cell.source, cast_to(as_expr(value), "uint64"), list(cell.indices))
    launch.random = _Stream(*cells)


def rng_rand() -> Any:
    """The next 32 random bits of this thread."""
    builder = Builder.current("rng_rand")
    stream = current_launch("rng_rand").random
    if stream is None:
        raise errors.NotSupported(what="T.rng_rand before T.rng_init", instead="start the generator: T.rng_init(seed)")
    at = _draw(builder, stream.position)
    words = _philox(builder, at >> tirx.const(2, "uint64"), stream)
    lane = at & tirx.const(3, "uint64")
    value = words[3]
    for number in (2, 1, 0):
        value = tirx.Select(tirx.EQ(lane, tirx.const(number, "uint64")), words[number], value)
    return builder.bind(value, "bits")


def _draw(builder: Builder, position: Any) -> Any:
    """The place of the next number in the stream, which moves on.

    The iterations of a T.Parallel nest have no order: each takes the place of its own number in the nest.
    """
    loop = builder.open_parallel
    if loop is None:
        at = builder.bind(position, "at")
        builder.store(position.source, at + tirx.const(1, "uint64"), list(position.indices))
        return at
    linear: Any = tirx.const(loop.draws, "uint64")
    for var, start, extent in loop.loops:
        linear = linear * cast_to(extent, "uint64") + cast_to(var - start, "uint64")
    loop.draws += 1
    count: Any = tirx.const(1, "uint64")
    for _, _, extent in loop.loops:
        count = count * cast_to(extent, "uint64")
    loop.after.append(tirx.BufferStore(position.source, position + count, list(position.indices), span=builder.span))
    return builder.bind(position + linear, "at")


def rng_rand_float(bit: int = 32, dist: str = "uniform") -> Any:
    """The next random float32: "uniform" in (0, 1], or "normal" with mean 0 and variance 1 (of two numbers)."""
    builder = Builder.current("rng_rand_float")
    if dist not in ("uniform", "normal"):
        raise errors.BadChoice(what="dist", value=dist, choices="uniform, normal", arg="dist")
    if bit != 32:
        raise errors.BadChoice(what="bit", value=bit, choices="32", arg="bit")
    first = builder.bind(_unit(rng_rand()), "unit")
    if dist == "uniform":
        return first
    radius = tirx.sqrt(tirx.const(-2.0, "float32") * tirx.log(first))
    angle = tirx.const(2 * _math.pi, "float32") * builder.bind(_unit(rng_rand()), "unit")
    return builder.bind(radius * tirx.sin(angle), "normal")


def _unit(bits: Any) -> Any:
    return cast_to(bits, "float32") * tirx.const(2.0**-32, "float32") + tirx.const(2.0**-33, "float32")


def _philox(builder: Builder, block: Any, stream: _Stream) -> list[Any]:
    """Four words of a block of the stream."""
    counter = [*_halves(builder, block), *_halves(builder, stream.subsequence)]
    key = _halves(builder, stream.seed)
    for number in range(_ROUNDS):
        if number:
            key = [builder.bind(k + tirx.const(w, "uint32"), "key") for k, w in zip(key, _WEYL, strict=True)]
        (low_0, high_0), (low_1, high_1) = (
            _halves(builder, cast_to(c, "uint64") * tirx.const(m, "uint64"))
            for c, m in zip((counter[0], counter[2]), _MULTIPLIERS, strict=True)
        )
        counter = [
            builder.bind(high_1 ^ counter[1] ^ key[0], "word"), low_1,
            builder.bind(high_0 ^ counter[3] ^ key[1], "word"), low_0,
        ]  # fmt: skip
    return counter


def _halves(builder: Builder, wide: Any) -> list[Any]:
    """The lower and the upper 32 bits."""
    whole = builder.bind(wide, "wide")
    return [
        builder.bind(cast_to(whole, "uint32"), "low"),
        builder.bind(cast_to(whole >> tirx.const(32, "uint64"), "uint32"), "high"),
    ]
