# SPDX-License-Identifier: Apache-2.0
"""Finds the user's lines for what compiler and assembler say about a kernel's text.

A kernel about which there is nothing to say is compiled once, without line tables. One that spills registers or whose
wgmmas are serialised is compiled a second time, from a text with `#line` directives: its PTX says which statement a
message means, its machine code which statements move registers to local memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tilelang.codegen.compile import (
    CompileError,
    CompileOptions,
    Cubin,
    NoDisassembler,
    PerformanceNote,
    compile_cuda,
    disassemble,
)
from tilelang.codegen.cuda import CudaSource

__all__ = ["compile_source", "locate_notes"]

_MOST_PLACES = 4  # a kernel that spills does so nearly everywhere; the worst statements say why

Line = tuple[str, int]  # file and line as compilers write them


def compile_source(source: CudaSource, options: CompileOptions = CompileOptions()) -> Cubin:
    """The cubin of `source`. A CompileError names the statement whose text the compiler rejects."""
    try:
        return compile_cuda(source.text, source.arch, options)
    except CompileError as error:
        text, places = source.with_lines()
        error.span = places.of_line(text, error.line)
        raise


def locate_notes(source: CudaSource, options: CompileOptions = CompileOptions()) -> tuple[PerformanceNote, ...]:
    """The performance notes on `source`, with their places; of a kernel that spills the worst come first."""
    text, places = source.with_lines()
    cubin = compile_cuda(text, source.arch, replace(options, line_info=True))
    spills = _spills(cubin) if any(note.code == "spill" for note in cubin.notes) else {}
    ptx = list(_lines_of_ptx(cubin.ptx))

    def located(note: PerformanceNote) -> PerformanceNote:
        lines: list[Line | None]
        if note.code == "spill":
            lines = [line for line, _ in spills.get(note.kernel, Counter()).most_common()]
        elif note.ptx_line:
            lines = [line for _, line, _ in ptx[note.ptx_line - 1 : note.ptx_line]]
        else:
            lines = [line for kernel, line, text in ptx if kernel == note.kernel and "wgmma.mma_async" in text]
        found = dict.fromkeys(places.find(*line) for line in lines if line is not None)
        return replace(note, places=tuple(p for p in found if p is not None)[:_MOST_PLACES])

    return tuple(located(note) for note in cubin.notes)


_FILE = re.compile(r'\s*\.file\s+(\d+) "(.*)"')
_ENTRY = re.compile(r"\.entry (\w+)\(")
_LOC = re.compile(r"\s*\.loc\s+(\d+) (\d+) \d+(?:, function_name \S+, inlined_at (\d+) (\d+) \d+)?")


def _lines_of_ptx(ptx: str) -> Iterator[tuple[str, Line | None, str]]:
    """Every line of the text with its kernel and the line of the kernel that it was made from: of inlined functions,
    the line that calls them."""
    lines = ptx.split("\n")
    files = {m[1]: m[2] for m in map(_FILE.match, lines) if m is not None}
    kernel, line = "", None
    for text in lines:
        if entry := _ENTRY.search(text):
            kernel, line = entry[1], None
        elif loc := _LOC.match(text):
            file, number = (loc[3], loc[4]) if loc[3] is not None else (loc[1], loc[2])
            line = (files.get(file, ""), int(number))
        yield kernel, line, text


_SECTION = re.compile(r"\s*\.section\s+\.text\.(\w+)")
_LINE_INFO = re.compile(r'\s*//## File "(.*?)", line (\d+)')
_LOCAL = re.compile(r"\s(?:STL|LDL)\b")
_SPILL = "SpillRefill"  # how nvdisasm marks them; local arrays use the same instructions


def _spills(cubin: Cubin) -> dict[str, Counter[Line]]:
    """Instructions of every kernel that move registers to local memory and back, by line."""
    try:
        sass = disassemble(cubin, line_info=True)
    except NoDisassembler:  # the notes then say what there is to say without lines
        return {}
    marked = _SPILL in sass
    kernel, line, found = "", None, dict[str, Counter[Line]]()
    for text in sass.split("\n"):
        if section := _SECTION.match(text):
            kernel, line = section[1], None
        elif info := _LINE_INFO.match(text):  # of a chain of inlined functions, the last is the kernel's own line
            line = (info[1], int(info[2]))
        elif line is not None and _LOCAL.search(text) and (_SPILL in text or not marked):
            found.setdefault(kernel, Counter())[line] += 1
    return found
