# SPDX-License-Identifier: Apache-2.0
"""CUDA text -> cubin, with what ptxas said about it.

NVRTC compiles in process; nvcc is the fallback and can be asked for. Flags of programs are those of nvcc
(`compiler_flags`). Approximate arithmetic is never switched on for a whole kernel unless asked: fast functions are
device ops of their own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tilelang.codegen import nvrtc
from tilelang.codegen.compiler_flags import for_nvrtc
from tilelang.support.diagnostics import Note, SourceSpan, render
from tilelang.support.errors import UserError
from tilelang.support.faults import keep_text
from tilelang.target.arch import Arch, arch_of
from tilelang.target.toolchain import find_tool, include_dirs, nvcc_path

__all__ = [
    "CompileError",
    "CompileOptions",
    "Cubin",
    "KernelUsage",
    "NoCompiler",
    "NoDisassembler",
    "PerformanceNote",
    "compile_cuda",
    "disassemble",
    "parse_log",
]


class NoCompiler(UserError):
    code = "TL9001"
    message = "no CUDA compiler found: {tried}"
    help = "pip install 'tilelang[cuda]' (NVRTC), or install the CUDA toolkit and set CUDA_HOME"


class CompileError(UserError):
    code = "TL9002"
    message = "{compiler} rejected the generated CUDA text:\n{log}{excerpt}"
    help = "this is a fault of tilelang unless the kernel imports CUDA source of its own; {where}"

    @property
    def line(self) -> int:
        """The line of the text that the first complaint is about; 0 where it names none."""
        found = _COMPLAINT.search(self.fields["log"])
        return int(found[1]) if found is not None else 0


class NoDisassembler(UserError):
    code = "TL9003"
    message = "nvdisasm was not found"
    help = "pip install nvidia-cuda-nvdisasm, or install the CUDA toolkit"


@dataclass(frozen=True)
class CompileOptions:
    """Flags of the CUDA compiler; part of a kernel's cache key."""

    fast_math: bool = False  # --use_fast_math for everything
    ptxas_level: int | None = None  # --register-usage-level, 0 to 10
    line_info: bool = False
    compiler: str = ""  # "" = NVRTC, else nvcc | "nvrtc" | "nvcc"
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class PerformanceNote:
    """Something ptxas reports that costs speed: `code` is C7510 ... or "spill".

    `places` are the user's statements that it is about; None where nobody has looked for them
    (`tilelang.codegen.locate`)."""

    code: str
    kernel: str
    text: str
    ptx_line: int = 0  # where ptxas saw it, 0 where it does not say
    places: tuple[SourceSpan, ...] | None = None

    def __str__(self) -> str:
        """One line, the places included."""
        where = f" (at {', '.join(f'{p.file}:{p.line}' for p in self.places)})" if self.places else ""
        return f"{self.code} in {self.kernel or 'the kernel'}: {self.text}{where}"

    def render(self) -> str:
        """The note with the user's lines and carets."""
        first, *others = self.places or (None,)
        header = f"warning[{self.code}]: {self.text} in {self.kernel or 'the kernel'}"
        return render(header, first, [Note("also here", place) for place in others])


@dataclass(frozen=True)
class KernelUsage:
    """What ptxas says about one kernel. Bytes are per thread, `smem` is static shared memory."""

    name: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    smem: int
    barriers: int


@dataclass(frozen=True)
class Cubin:
    """A compiled text: `data` is the ELF image, `log` the whole report."""

    data: bytes
    arch: Arch
    log: str
    kernels: dict[str, KernelUsage] = field(default_factory=dict)
    notes: tuple[PerformanceNote, ...] = ()
    ptx: str = ""

    @property
    def registers(self) -> int:
        """Most registers a thread of any kernel takes."""
        return max((k.registers for k in self.kernels.values()), default=0)

    @property
    def spill_bytes(self) -> int:
        return sum(k.spill_stores + k.spill_loads for k in self.kernels.values())


_COMPILING = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SMEM = re.compile(r"(\d+) bytes smem")
_WARNING = re.compile(
    r"\((C75\d\d)\) (?:Potential Performance Loss: )?(.*?)(?: in (?:the )?function '(\w+)')?(?: in line (\d+))?$"
)


def parse_log(log: str) -> tuple[dict[str, KernelUsage], tuple[PerformanceNote, ...]]:
    """Kernel usage and performance notes in ptxas' verbose report."""
    kernels: dict[str, KernelUsage] = {}
    notes: list[PerformanceNote] = []
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if m := _WARNING.search(line):
            notes.append(PerformanceNote(m[1], m[3] or "", m[2], int(m[4] or 0)))
        elif m := _COMPILING.search(line):
            name, stack = m[1], (0, 0, 0)
        elif m := _SPILLS.search(line):
            stack = (int(m[1]), int(m[2]), int(m[3]))
        elif (m := _USED.search(line)) and name:
            barriers, smem = _BARRIERS.search(line), _SMEM.search(line)
            kernels[name] = KernelUsage(
                name,
                int(m[1]),
                stack[1],
                stack[2],
                stack[0],
                int(smem[1]) if smem else 0,
                int(barriers[1]) if barriers else 0,
            )
    for k in kernels.values():
        if k.spill_stores or k.spill_loads:
            text = f"{k.spill_stores} bytes of registers are spilled and {k.spill_loads} bytes reloaded"
            notes.append(PerformanceNote("spill", k.name, text))
    return kernels, tuple(notes)


def compile_cuda(text: str, arch: Arch | str, options: CompileOptions = CompileOptions()) -> Cubin:
    """The cubin of `text` for `arch`. Raises NoCompiler or CompileError."""
    arch = arch_of(arch)
    if options.compiler in ("", "nvrtc") and nvrtc.is_available():
        data, log, ptx = _with_nvrtc(text, arch, options)
    elif options.compiler in ("", "nvcc") and nvcc_path() is not None:
        data, log, ptx = _with_nvcc(text, arch, options)
    else:
        raise NoCompiler(tried=options.compiler or "NVRTC (cuda-bindings, nvidia-cuda-nvrtc) and nvcc")
    kernels, notes = parse_log(log)
    return Cubin(data, arch, log, kernels, notes, ptx)


_COMPLAINT = re.compile(r"kernel\.cu\((\d+)\): (?:catastrophic )?error")
_AROUND, _WIDTH = 3, 160  # lines shown in front of and behind one that is rejected, characters of each


def _rejected(compiler: str, text: str, log: str) -> CompileError:
    """The error for a text that a compiler does not take; the text is kept for people to look at."""
    path = keep_text("rejected", text, ".cu")
    error = CompileError(compiler=compiler, log=log.rstrip(), excerpt="", where=f"the text is in {path}")
    if error.line:
        lines = text.split("\n")
        shown = range(max(1, error.line - _AROUND), min(len(lines), error.line + _AROUND) + 1)
        numbered = (f"{'>' if n == error.line else ' '} {n:5d} | {lines[n - 1][:_WIDTH]}" for n in shown)
        error.fields["excerpt"] = "\n\n" + "\n".join(numbered)
    return error


def _ptxas_flags(options: CompileOptions) -> list[str]:
    flags = ["-v"]
    if options.ptxas_level is not None:
        flags.append(f"--register-usage-level={options.ptxas_level}")
    return flags


def _common_flags(options: CompileOptions) -> list[str]:
    flags = ["-std=c++17", "-diag-suppress=177,550"]  # variables TVM binds and does not use
    if options.fast_math:
        flags.append("--use_fast_math")
    if options.line_info:
        flags.append("-lineinfo")
    return flags


def _with_nvrtc(text: str, arch: Arch, options: CompileOptions) -> tuple[bytes, str, str]:
    flags = [f"--gpu-architecture={arch.name}", "-default-device", *_common_flags(options), *for_nvrtc(options.extra)]
    flags += [f"--ptxas-options={f}" for f in _ptxas_flags(options)]
    flags += [f"-I{folder}" for folder in nvrtc.header_dirs()]
    ok, data, log, ptx = nvrtc.compile_program(text, flags)
    if not ok:
        raise _rejected("NVRTC", text, log)
    return data, log, ptx


def _with_nvcc(text: str, arch: Arch, options: CompileOptions) -> tuple[bytes, str, str]:
    nvcc = nvcc_path()
    assert nvcc is not None
    code = arch.name.removeprefix("sm_")
    with tempfile.TemporaryDirectory(prefix="tilelang-") as folder:
        source, cubin = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
        source.write_text(text, encoding="utf-8")
        command = [
            str(nvcc),
            "-cubin",
            "-O3",
            f"-gencode=arch=compute_{code},code=sm_{code}",
            *_common_flags(options),
            *options.extra,
        ]
        command += [f"-Xptxas={f}" for f in _ptxas_flags(options)]
        command += [f"-I{d}" for d in include_dirs()[:1]]
        command += ["-keep", f"-keep-dir={folder}", "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode != 0:
            raise _rejected("nvcc", text, log)
        ptx = next(iter(Path(folder).glob("*.ptx")), None)
        return cubin.read_bytes(), log, ptx.read_text(encoding="utf-8") if ptx else ""


def disassemble(cubin: Cubin | bytes, line_info: bool = False) -> str:
    """SASS text of a cubin, by nvdisasm; with `line_info` the lines of the text come between the instructions, where
    it was compiled so. Raises NoDisassembler."""
    tool = find_tool("nvdisasm")
    if tool is None:
        raise NoDisassembler()
    data = cubin.data if isinstance(cubin, Cubin) else cubin
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(data)
        file.flush()
        flags = ["-c", "-gi"] if line_info else ["-c"]
        done = subprocess.run([str(tool), *flags, file.name], capture_output=True, text=True, check=True)
    return done.stdout
