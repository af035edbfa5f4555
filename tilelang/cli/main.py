# SPDX-License-Identifier: Apache-2.0
"""The commands. Each is a few lines: find the program, call the room that knows, print what it says.

A user's mistake ends the command with its text and status 1; status 2 is a command line that makes no sense, 70 a fault
of tilelang.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from tilelang.cli.program import (
    BadCommand,
    call_users,
    expect_values,
    load_object,
    load_program,
    program_of,
    split_settings,
)

__all__ = ["app"]

app = typer.Typer(
    help="Compile, look into, run and check tile programs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Where = Annotated[str, typer.Argument(metavar="FILE.py:FACTORY", help="the jit function, factory or program to take")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="an argument of the factory; where the kernel runs, also a symbol of a shape or a scalar; repeat it",
    ),
]
DeviceTarget = Annotated[str, typer.Option("--target", help="the GPU to compile for: cuda, cuda:sm_90a, ...")]


_PICTURES = (".png", ".svg", ".pdf")


class Emit(str, Enum):
    """What `compile` prints."""

    TIR = "tir"
    LAID_OUT = "laid-out"
    SCHEDULED = "scheduled"
    DEVICE = "device"
    CUDA = "cuda"
    PTX = "ptx"
    CUBIN = "cubin"
    SASS = "sass"
    LLVM = "llvm"


class Blocks(str, Enum):
    """Which blocks `check` runs: auto samples a large grid."""

    AUTO = "auto"
    ALL = "all"
    SAMPLE = "sample"


@app.callback(invoke_without_command=True)
def start(
    version: Annotated[bool, typer.Option("--version", help="show the version and end", is_eager=True)] = False,
) -> None:
    """Compile, look into, run and check tile programs."""
    if version:
        from tilelang import __version__

        typer.echo(f"tilelang {__version__}")
        raise typer.Exit


def _reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """User errors as their text alone: a traceback through the compiler helps nobody."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        from tilelang.support.env import BadVariable
        from tilelang.support.errors import InternalError, UserError

        try:
            command(*args, **kwargs)
        except (BadCommand, BadVariable) as error:
            typer.echo(f"tilelang: {error}", err=True)
            raise typer.Exit(2) from None
        except UserError as error:
            typer.echo(error.render(), err=True)
            raise typer.Exit(1) from None
        except InternalError as error:  # its report has the traceback
            typer.echo(str(error), err=True)
            raise typer.Exit(70) from None
        except OSError as error:  # a file to write that cannot be written
            typer.echo(f"tilelang: {error}", err=True)
            raise typer.Exit(2) from None

    return run


def _target(text: str | None) -> Any:
    """The target of that name."""
    from tilelang.jit import resolve_target

    try:
        return resolve_target(text)
    except ValueError as error:
        raise BadCommand(error) from None


def _arch(target: str, what: str = "layouts and instructions to show") -> Any:
    resolved = _target(target)
    if resolved.arch is None:
        raise BadCommand(f"target {target} is no GPU and has no {what}; say cuda:sm_90a")
    return resolved.arch


@app.command(name="compile")
@_reports_errors
def compile_command(
    where: Where,
    settings: Settings = None,
    target: Annotated[str, typer.Option(help="cuda, cuda:sm_90a or sim; cpu, which has tir and llvm")] = "cuda:sm_90a",
    emit: Annotated[Emit | None, typer.Option(help="the level to print; cuda if left out, of cpu llvm")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="write there instead of the terminal")] = None,
) -> None:
    """Print a program at one level, from the tile program to machine code."""
    from tilelang.cli.emit import cubin_of
    from tilelang.cli.emit import emit as emit_text
    from tilelang.codegen.compile import disassemble

    if emit is None:
        emit = Emit.LLVM if _target(target).kind == "cpu" else Emit.CUDA
    if emit is Emit.CUBIN and output is None:
        raise BadCommand("a cubin is binary: give --output FILE")
    program = load_program(where, settings or [])
    if emit in (Emit.PTX, Emit.CUBIN, Emit.SASS):
        cubin = cubin_of(program, _arch(target, emit.value))
        for note in cubin.notes:
            typer.echo(note.render(), err=True)
        if emit is Emit.CUBIN:
            assert output is not None
            output.write_bytes(cubin.data)
            return
        text = cubin.ptx if emit is Emit.PTX else disassemble(cubin)
    elif emit in (Emit.TIR, Emit.LLVM):  # which no architecture changes
        _target(target)
        text = emit_text(program, None, emit.value)
    else:
        text = emit_text(program, _arch(target, emit.value), emit.value)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text)


@app.command()
@_reports_errors
def inspect(where: Where, settings: Settings = None, target: DeviceTarget = "cuda:sm_90a") -> None:
    """Show layouts, pipeline, instructions, resources, and why nothing faster was taken."""
    from tilelang.cli.emit import cubin_of
    from tilelang.tools.report import inspect_program
    from tilelang.tools.resources import describe_resources

    program, arch = load_program(where, settings or []), _arch(target)
    typer.echo(inspect_program(program, arch).text())
    typer.echo("")
    typer.echo(describe_resources(cubin_of(program, arch)))


@app.command()
@_reports_errors
def run(
    where: Annotated[str, typer.Argument(metavar="FILE.py[:FACTORY]")],
    settings: Settings = None,
    target: Annotated[str | None, typer.Option(help="cuda, cpu or sim; the best there is if left out")] = None,
) -> None:
    """Compile, call on random inputs and time. A FILE.py without FACTORY runs as a script, whose kernels are for the
    target where it names none."""
    if ":" not in where:
        import runpy

        if settings:
            raise BadCommand(f"--set is for the arguments of a factory: {where}:FACTORY")
        if target is not None:  # what the script's kernels are for where it names no target
            os.environ["TILELANG_TARGET"] = str(_target(target))
        if not Path(where).is_file():
            raise BadCommand(f"no such file: {where}")
        sys.argv = [where]
        sys.path.insert(0, str(Path(where).parent.resolve()))
        runpy.run_path(where, run_name="__main__")
        return
    from tilelang.cli.execute import run_kernel

    kernel, given = _kernel(where, settings, target)
    for line in run_kernel(kernel, _values(where, kernel, given)):
        typer.echo(line)


@app.command()
@_reports_errors
def check(
    where: Where,
    settings: Settings = None,
    target: Annotated[str, typer.Option(help="sim, sim:sm_90a or cuda")] = "sim",
    blocks: Annotated[Blocks, typer.Option(help="which blocks the simulator runs")] = Blocks.AUTO,
    costs: Annotated[bool, typer.Option("--costs", help="show bank conflicts, sectors, issues and waits")] = False,
    seconds: Annotated[float, typer.Option(help="of wall time that the check may take", min=0.0)] = 600.0,
) -> None:
    """Run the device program on the simulator: races, deadlocks, bounds; compare its results with the cpu target.

    Several interleavings are run. Status 0 says that none showed a fault. With --target cuda the GPU's results are
    compared, without the checks."""
    if _target(target).kind == "cpu":
        raise BadCommand(
            "--target cpu would compare the cpu target with itself; say sim, or cuda on a machine with a GPU"
        )
    tested, given = _kernel(where, settings, target)
    if tested.target.kind == "sim":
        passed = _simulate(where, settings, tested, given, blocks.value, costs, seconds)
    else:
        from tilelang.cli.execute import compare

        reference, _ = _kernel(where, settings, "cpu")
        passed, lines = compare(reference, tested, _values(where, tested, given))
        for line in lines:
            typer.echo(line)
    if not passed:
        raise typer.Exit(1)


def _values(where: str, kernel: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Values for all symbols and scalars of a kernel; says which ones nobody gave."""
    from tilelang.profiler.supply import choose_values

    try:
        values = choose_values(kernel.signature, given)
    except ValueError as error:
        raise BadCommand(f"{where}: {error}") from None
    if told := [f"{n} = {v}" for n, v in values.items() if n not in given and v != 0]:
        typer.echo(f"chosen: {', '.join(told)}; --set NAME=VALUE gives others")
    return values


def _simulate(
    where: str,
    settings: list[str] | None,
    tested: Any,
    given: dict[str, Any],
    blocks: str,
    costs: bool,
    seconds: float,
) -> bool:
    from tilelang.codegen.cpu.errors import CpuUnsupported
    from tilelang.sim import SimUnsupported
    from tilelang.tools.check import check_kernel

    try:
        reference, _ = _kernel(where, settings, "cpu")
    except CpuUnsupported as why:
        reference = None
        typer.echo(f"no comparison with the cpu target: {why.text}; interleavings are compared with each other")
    try:
        return check_kernel(
            tested,
            reference,
            blocks=blocks,
            costs=costs,
            values=_values(where, tested, given),
            seconds=seconds,
            say=typer.echo,
        ).passed
    except SimUnsupported as why:
        raise BadCommand(f"{where} cannot be simulated: {why}") from None


def _kernel(where: str, settings: list[str] | None, target: str | None) -> tuple[Any, dict[str, Any]]:
    """The kernel of a program for a target, which can be run here, and the settings that are values for its symbols
    and scalars. The factory's own out_idx counts."""
    import tilelang
    from tilelang.runtime import device

    resolved = _target(target)
    if resolved.kind == "cuda" and not device.device_count():
        raise BadCommand(f"target {resolved} cannot run here: {device.why_no_device()}; --target cpu or sim can")
    found = load_object(where)
    impl = getattr(found, "impl", found)
    arguments, values = split_settings(where, impl, settings or [])
    if hasattr(impl, "with_options"):
        kernel = call_users(where, impl.with_options(target=resolved).compile, arguments)
    else:
        kernel = tilelang.compile(program_of(where, impl, arguments), target=resolved)
    expect_values(where, impl, kernel.signature, values)
    return kernel, values


@app.command()
def explain(code: Annotated[str, typer.Argument(metavar="CODE", help="as TL1001")]) -> None:
    """Say what an error code means and what to write instead."""
    from tilelang.tools.errors import describe_error, nearest_code

    text = describe_error(code.upper())
    if text is None:
        typer.echo(f"tilelang: no error {code!r}; {nearest_code(code)}", err=True)
        raise typer.Exit(2)
    typer.echo(text)


@app.command()
def env() -> None:
    """Show versions, the device, the toolchain and the environment variables with their values."""
    from tilelang.tools.environment import describe_environment

    for line in describe_environment():
        typer.echo(line)


@app.command()
def passes() -> None:
    """List the passes in the order they run, with what each does."""
    from tilelang.tools.passes import describe_passes

    for line in describe_passes():
        typer.echo(line)


@app.command()
@_reports_errors
def trace(
    where: Where,
    settings: Settings = None,
    target: DeviceTarget = "cuda:sm_90a",
    name: Annotated[str | None, typer.Option("--pass", metavar="PASS", help="show what this pass changes")] = None,
    every: Annotated[bool, typer.Option("--all", help="list passes that change nothing as well")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="write an HTML page of all changes")] = None,
) -> None:
    """Show what every pass made of a program: which changed it, by how many lines, how long each took."""
    from tilelang.tools.trace import lower_trace

    traced = lower_trace(load_program(where, settings or []), _arch(target, "passes"))
    if name is not None:
        try:
            typer.echo(traced.step(name).diff() or f"{name} changes nothing")
        except ValueError as error:
            raise BadCommand(error) from None
    elif output is not None:
        traced.write_html(output)
    else:
        for line in traced.lines(every):
            typer.echo(line)
    if traced.error is not None:
        raise traced.error


@app.command()
@_reports_errors
def autodd(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="a script that ends with a failure")],
    error: Annotated[str, typer.Option("--error", "--err-msg", help="text of the failure; timeout for one that hangs")],
    arguments: Annotated[list[str] | None, typer.Argument(help="of the script, behind --")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="write there instead of the terminal")] = None,
    seconds: Annotated[float, typer.Option("--seconds", "--timeout", help="that a run may take", min=0.1)] = 60.0,
) -> None:
    """Make a failing script as small as it fails in the same way. Every candidate is run."""
    from tilelang.tools.autodd import minimize, runs_into

    try:
        source = file.read_text(encoding="utf-8")
        failing = runs_into(error, arguments or (), seconds, [file.parent.resolve()])
        small = minimize(source, failing, lambda line: typer.echo(line, err=True))
    except (UnicodeDecodeError, SyntaxError, ValueError) as why:
        raise BadCommand(f"{file}: {why}") from None
    if output is None:
        typer.echo(small, nl=False)
    else:
        output.write_text(small, encoding="utf-8")


@app.command()
@_reports_errors
def layout(
    where: Where,
    buffer: Annotated[str, typer.Argument(help="the buffer to draw")],
    settings: Settings = None,
    target: DeviceTarget = "cuda:sm_90a",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="draw there (.png, .svg or .pdf)")] = None,
) -> None:
    """Show where every element of a buffer lives."""
    from tilelang.tools.plot import layout_table, plot_layout
    from tilelang.tools.report import inspect_program

    if output is not None and output.suffix not in _PICTURES:
        raise BadCommand(f"--output is a picture ({', '.join(_PICTURES)}), got {output.name}")
    buffers = {
        b.name: b for b in inspect_program(load_program(where, settings or []), _arch(target)).buffers if b.layout
    }
    if buffer not in buffers:
        raise BadCommand(f"no buffer {buffer} with a layout; there are {', '.join(buffers) or 'none'}")
    from tilelang.layout import loads

    found = loads(buffers[buffer].layout)
    if output is None:
        typer.echo(buffers[buffer].layout)
        typer.echo(layout_table(found))
    else:
        plot_layout(found, str(output.parent), output.stem, formats=output.suffix.lstrip("."))
