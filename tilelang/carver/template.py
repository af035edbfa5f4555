# SPDX-License-Identifier: Apache-2.0
"""Templates: the shape of a computation, and the tile sizes that suit it.

Every template enumerates the tiles that fit shared memory and registers and ranks them by `tilelang.carver.model`.
Sizes are in elements and must be known; types are names such as "float16".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilelang.carver.arch.models import CUDA
from tilelang.carver.model import Loop, peak_flops, seconds, shared_stages
from tilelang.carver.roller.hint import Hint
from tilelang.carver.roller.rasterization import NoRasterization, Rasterization2DRow
from tilelang.language.errors import NotSupported
from tilelang.layout.dtypes import bits_of
from tilelang.target.arch import Arch
from tilelang.tir_builder.dtypes import as_dtype

__all__ = [
    "BaseTemplate",
    "ConvTemplate",
    "ElementwiseTemplate",
    "FlashAttentionTemplate",
    "GEMVTemplate",
    "GeneralReductionTemplate",
    "MatmulTemplate",
]

_OTHER_REGISTERS = 40  # of a thread, beside its tile
_MOST_STAGES = 8
_PANEL = 8  # rows of tiles


class BaseTemplate:
    """A computation of known shape. `with_arch` names the device, `recommend_hints` ranks tiles for it."""

    device: CUDA | None = None

    def with_arch(self, arch: CUDA) -> Any:
        """The template for a device: `CUDA("cuda")`, `CUDA("sm_80")`."""
        if not isinstance(arch, CUDA):
            raise TypeError(f"with_arch takes a device model, as CUDA('cuda'), not {arch!r}")
        self.device = arch
        return self

    def recommend_hints(self, topk: int = 10) -> list[Hint]:
        """At most `topk` suggestions, the best first. Raises ValueError for sizes that are no positive numbers."""
        for name, value in vars(self).items():
            sizes = value if isinstance(value, list | tuple) else [value]
            if name in _MAY_BE_ZERO or not all(isinstance(s, int) and not isinstance(s, bool) for s in sizes):
                continue
            if any(size < 1 for size in sizes):
                raise ValueError(f"{name} of {type(self).__name__} is {value}: sizes are positive")
        if topk < 1:
            raise ValueError(f"topk is {topk}: at least one suggestion is asked for")
        arch = self.arch.arch
        timed = [(replace(hint, estimated_seconds=seconds(loop, arch)), loop) for hint, loop in self.candidates(arch)]
        fitting = [(hint, loop) for hint, loop in timed if math.isfinite(hint.estimated_seconds)]
        return [hint for hint, _ in sorted(fitting, key=lambda pair: _rank(*pair))[:topk]]

    @property
    def arch(self) -> CUDA:
        """The device that suggestions are for."""
        return self.device or CUDA("cuda")

    def equivalent_function(self) -> Any:
        """Refused: a template knows sizes, and has no program."""
        raise NotSupported(
            what="equivalent_function of a template",
            instead="recommend_hints gives tile sizes for a program of yours; examples/ has programs",
        )

    def candidates(self, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        """Tiles with what their blocks do."""
        raise NotImplementedError


def _rank(hint: Hint, loop: Loop) -> tuple[float, float, float]:
    """By time; where that is the same within 2 %, by what the blocks load, then by time to the end."""
    return (
        round(math.log(hint.estimated_seconds) / math.log(1.02)),
        loop.blocks * loop.steps * loop.step_bytes,
        hint.estimated_seconds,
    )


_MAY_BE_ZERO = frozenset({"P", "device"})


def _bytes(dtype: Any) -> float:
    return bits_of(str(as_dtype(dtype))) / 8


def _slow_down(dtype: Any, arch: Arch) -> float:
    """Time of an operation in multiples of one on 16-bit numbers."""
    return arch.tensor_tflops * 1e12 / peak_flops(str(as_dtype(dtype)), arch)


@dataclass
class MatmulTemplate(BaseTemplate):
    """C (M, N) = A (M, K) @ B (K, N). Hints: block and warp (rows, columns of C), rstep (of K)."""

    M: int
    N: int
    K: int
    in_dtype: Any = "float16"
    out_dtype: Any = "float16"
    accum_dtype: Any = "float16"
    trans_A: bool = False
    trans_B: bool = True
    with_bias: bool = False

    def candidates(self, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        row = int(128 / _bytes(self.in_dtype))  # of K: one swizzled box
        tiles = itertools.product((16, 32, 64, 128, 256), (32, 64, 128, 256), (row // 2, row, 2 * row), (128, 256))
        for rows, columns, depth, threads in tiles:
            if arch.wgmma and rows < 64 and columns < threads // 2:
                continue  # a warpgroup has 64 rows, or 64 columns where there are fewer rows
            warp = _warp_tile(rows, columns, threads)
            if warp is not None and (rows <= 64 or rows < 2 * self.M) and (columns == 32 or columns < 2 * self.N):
                yield from self._tile(rows, columns, depth, threads, warp, arch)

    def _tile(
        self, rows: int, columns: int, depth: int, threads: int, warp: list[int], arch: Arch
    ) -> Iterable[tuple[Hint, Loop]]:
        size, out = _bytes(self.in_dtype), _bytes(self.out_dtype)
        steps = -(-self.K // depth)
        stage = int((rows + columns) * depth * size)
        kept = int(rows * min(columns, 128) * out)  # the tile's way out
        stages = shared_stages(stage, kept, steps, _MOST_STAGES, arch)
        if not stages:
            return
        grid = -(-self.M // rows), -(-self.N // columns)
        loop = Loop(
            blocks=math.prod(grid),
            steps=steps,
            step_flops=2 * _computed(rows, columns, arch) * depth * _slow_down(self.in_dtype, arch),
            step_bytes=stage,
            out_bytes=rows * columns * out,
            dram_bytes=(self.M + self.N) * self.K * size + self.M * self.N * out,
            threads=threads,
            registers=int(rows * columns / threads * _bytes(self.accum_dtype) / 4) + _OTHER_REGISTERS,
            shared_bytes=stages * stage + kept,
            stages=stages,
        )
        panels = loop.blocks > arch.num_sms and grid[0] > _PANEL
        plan = Rasterization2DRow(_PANEL) if panels else NoRasterization()
        yield Hint([rows, columns], warp, [], [depth], [], int(16 / size), stages, stages > 1, True, plan), loop


def _warp_tile(rows: int, columns: int, threads: int) -> list[int] | None:
    """Rows and columns of a warp where `threads` share a tile: rows of 16 as far as there are some."""
    warps = threads // 32
    down = min(warps, rows // 16)
    across = warps // down
    return [rows // down, columns // across] if columns // across >= 8 else None


def _computed(rows: int, columns: int, arch: Arch) -> int:
    """Elements of C that tensor cores compute for a tile: wgmma has 64 rows, which may be columns of C."""
    return min(max(rows, 64) * columns, rows * max(columns, 64)) if arch.wgmma else rows * columns


@dataclass
class ConvTemplate(BaseTemplate):
    """A convolution of images (N, H, W, C) with F filters of K by K, stride S, dilation D, padding P, as the product
    of its unfolded images and filters. Hints: those of MatmulTemplate for (N * OH * OW, F) with K * K * C reduced."""

    N: int
    C: int
    H: int
    W: int
    F: int
    K: int
    S: int = 1
    D: int = 1
    P: int = 0
    in_dtype: Any = "float16"
    out_dtype: Any = "float16"
    accum_dtype: Any = "float16"
    with_bias: bool = False

    def candidates(self, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        high, wide = ((size + 2 * self.P - self.D * (self.K - 1) - 1) // self.S + 1 for size in (self.H, self.W))
        if high < 1 or wide < 1:
            raise ValueError(f"a filter of {self.K} by {self.K} does not fit an image of {self.H} by {self.W}")
        product = MatmulTemplate(
            self.N * high * wide, self.F, self.K**2 * self.C, self.in_dtype, self.out_dtype, self.accum_dtype
        )
        size = _bytes(self.in_dtype)
        read = (self.N * self.H * self.W * self.C + self.F * self.K**2 * self.C) * size
        written = self.N * high * wide * self.F * _bytes(self.out_dtype)
        for hint, loop in product.candidates(arch):
            yield hint, replace(loop, dram_bytes=read + written)


@dataclass
class FlashAttentionTemplate(BaseTemplate):
    """Attention of (batch_size, num_heads, seq_length, head_dim). Hints: block (queries, keys), warp (16 queries or
    more, keys), rstep (keys)."""

    batch_size: int = 1
    num_heads: int = 1
    head_dim: int = 128
    seq_length: int = 1024
    seq_kv_length: int = 1024
    is_causal: bool = False
    in_dtype: Any = "float16"
    out_dtype: Any = "float16"
    accum_dtype: Any = "float32"

    def candidates(self, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        size, out, heads = _bytes(self.in_dtype), _bytes(self.out_dtype), self.batch_size * self.num_heads
        for queries, keys, threads in itertools.product((64, 128, 192, 256), (32, 64, 128, 256), (128, 256, 384, 512)):
            rows = queries // (threads // 32)
            if rows < 16 or rows % 16 or (queries > 64 and queries >= 2 * self.seq_length):
                continue
            share = 0.5 if self.is_causal and self.seq_length == self.seq_kv_length else 1.0
            steps = max(1, math.ceil(-(-self.seq_kv_length // keys) * share))
            stage, held = int(2 * keys * self.head_dim * size), int(queries * self.head_dim * max(size, out))
            stages = shared_stages(stage, held, steps, 4, arch)
            if not stages:
                continue
            flops = 4 * queries * keys * self.head_dim * _slow_down(self.in_dtype, arch)
            # In the time of an exponential tensor cores do 256 operations, in that of a rescaled sum 32
            # (tilelang/analysis/work.py); half of it hides behind the products of another warpgroup.
            flops += queries * (128 * keys + 16 * self.head_dim)
            loop = Loop(
                blocks=heads * -(-self.seq_length // queries),
                steps=steps,
                step_flops=flops,
                step_bytes=stage,
                out_bytes=queries * self.head_dim * out,
                dram_bytes=heads * self.head_dim * (self.seq_length * (size + out) + 2 * self.seq_kv_length * size),
                threads=threads,
                registers=int(queries * (self.head_dim + keys * (1 + size / 4)) / threads) + _OTHER_REGISTERS,
                shared_bytes=stages * stage + held,
                stages=stages,
            )
            yield Hint([queries, keys], [rows, keys], [], [keys], [], int(16 / size), stages, stages > 1, True), loop


@dataclass
class GEMVTemplate(BaseTemplate):
    """y (N) = B (N, K) @ x (K). Hints: block (elements of y), thread, reduce_thread (threads that share a row), rstep
    (of K, all of them together)."""

    N: int
    K: int
    in_dtype: Any = "float16"
    out_dtype: Any = "float16"
    accum_dtype: Any = "float16"
    trans_B: bool = True
    with_bias: bool = False

    def candidates(self, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        yield from _rows(self.N, self.K, 1, _bytes(self.in_dtype), _bytes(self.out_dtype), arch)


@dataclass
class GeneralReductionTemplate(BaseTemplate):
    """A reduction over the axes that `structure` marks with R; S are the others ("SSR": over the last of three). Hints:
    block (of the axes that stay), thread, rstep and reduce_thread (of each reduced axis)."""

    structure: str | Sequence[str]
    shape: Sequence[int]
    dtype: Any = "float16"

    def candidates(self, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        kinds = "".join(self.structure)
        if len(kinds) != len(self.shape) or set(kinds) - {"S", "R"} or "R" not in kinds:
            raise ValueError(f"structure {kinds!r} does not name an axis S or R for each of {list(self.shape)}, one R")
        kept, reduced = ([s for s, k in zip(self.shape, kinds) if k == kind] for kind in "SR")
        size, stay, gone = _bytes(self.dtype), len(kept), len(reduced)
        if kinds[-1] == "S":  # neighbours in memory are different results: a thread has whole columns
            yield from self._columns(kept, reduced, arch)
            return
        others = math.prod(kept) if kept else 1
        for hint, loop in _rows(others, reduced[-1], math.prod(reduced[:-1]), size, size, arch):
            block = [1] * (stay - 1) + hint.block if stay else []
            if kept and hint.block[0] > 1 and hint.block[0] >= 2 * kept[-1]:
                continue  # of rows that are no neighbours
            rstep, lanes = [1] * (gone - 1) + hint.rstep, [1] * (gone - 1) + hint.reduce_thread
            thread = [1] * (stay - 1) + hint.thread if stay else []
            if stay or hint.block[0] == 1:
                yield replace(hint, block=block, thread=thread, rstep=rstep, reduce_thread=lanes), loop

    def _columns(self, kept: list[int], reduced: list[int], arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        size, steps = _bytes(self.dtype), math.prod(reduced)
        for threads, width in itertools.product((32, 64, 128, 256), (1, 2, 4, 8)):
            columns = threads * width
            if width * size > 16 or (columns > 32 and columns >= 2 * kept[-1]):
                continue
            blocks = math.prod(kept[:-1]) * -(-kept[-1] // columns)
            moved = (math.prod(self.shape) + math.prod(kept)) * size
            loop = Loop(blocks, steps, 0, columns * size, columns * size, moved, threads, 32 + width, 0, 8)
            ones, lone = [1] * (len(kept) - 1), [1] * len(reduced)
            yield Hint([*ones, columns], [], [*ones, threads], lone, lone, width), loop


def _rows(rows: int, length: int, times: int, size: float, out: float, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
    """`rows` sums over `length` neighbours, `times` of them each: lanes share a row, with accesses of 16 bytes."""
    width = max(1, int(16 / size))
    for height, lanes, unroll in itertools.product((1, 2, 4, 8, 16, 32), (8, 16, 32, 64, 128, 256), (1, 2, 4)):
        threads, step = height * lanes, lanes * width * unroll
        if not 64 <= threads <= 512 or (step > 8 * width and step >= 2 * length) or (height > 1 and height >= 2 * rows):
            continue
        blocks, steps = -(-rows // height), -(-length // step) * times
        moved = (rows * length * times + length) * size + rows * out
        loop = Loop(blocks, steps, 0, height * step * size, height * out, moved, threads, 32 + 4 * unroll, 0, 2)
        yield Hint([height], [], [height], [step], [lanes], width), loop


@dataclass
class ElementwiseTemplate(BaseTemplate):
    """A function of every element of a tensor. Hints: block and thread along each axis, vectorize."""

    shape: Sequence[int]
    dtype: Any = "float16"

    def candidates(self, arch: Arch) -> Iterable[tuple[Hint, Loop]]:
        size = _bytes(self.dtype)
        width = max(1, int(16 / size))
        columns_of = self.shape[-1]
        for across, down, unroll in itertools.product((32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 4)):
            threads, columns = across * down, across * width
            rows = down * unroll if len(self.shape) > 1 else 1
            columns *= 1 if len(self.shape) > 1 else unroll
            one_axis = len(self.shape) == 1 and down > 1
            too_wide = across > 32 and columns >= 2 * columns_of
            if one_axis or not 64 <= threads <= 512 or too_wide or (rows > 1 and rows >= 2 * self.shape[-2]):
                continue
            extents = [*[1] * max(0, len(self.shape) - 2), rows, columns][-len(self.shape) :]
            lanes = [*[1] * max(0, len(self.shape) - 2), down, across][-len(self.shape) :]
            blocks = math.prod(-(-whole // part) for whole, part in zip(self.shape, extents))
            tile, moved = rows * columns * size, 2 * math.prod(self.shape) * size
            yield Hint(extents, [], lanes, vectorize=width), Loop(blocks, 1, 0, tile, tile, moved, threads, 48, 0)
