# SPDX-License-Identifier: Apache-2.0
"""Finds the tile program that a command line names: `FILE.py:FACTORY` with `--set NAME=VALUE` for its arguments."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilelang.support.diagnostics import NOT_THE_USERS, PACKAGE

__all__ = [
    "BadCommand",
    "arguments_for",
    "call_users",
    "expect_values",
    "load_object",
    "load_program",
    "parse_settings",
    "program_of",
    "split_settings",
]


class BadCommand(Exception):
    """The command line names something that is not there; the text is all that the user needs to see."""


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`["M=4096", "dtype=bfloat16"]` as arguments: Python literals where they read as such, else text."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip().isidentifier():
            raise BadCommand(f"--set takes NAME=VALUE, got {setting!r}")
        if name.strip() in found:
            raise BadCommand(f"--set gives {name.strip()} twice")
        try:
            found[name.strip()] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name.strip()] = text
    return found


def load_object(where: str) -> Any:
    """The object that `FILE.py:NAME` names. Without a name, the only jit function or program of the file."""
    file, _, name = where.partition(":")
    path = Path(file)
    if not path.is_file():
        raise BadCommand(f"no such file: {file}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadCommand(f"not a Python file: {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    call_users(file, spec.loader.exec_module, {"module": module})
    found = {k: v for k, v in vars(module).items() if _is_program(v) and _is_of(v, path.stem)}
    if name:
        if not hasattr(module, name):
            every = [k for k, v in vars(module).items() if k in found or (_makes_program(v) and _is_of(v, path.stem))]
            raise BadCommand(f"{file} has no {name!r}; it has {', '.join(every) or 'no jit function'}")
        return getattr(module, name)
    if not found:
        raise BadCommand(f"{file} has no jit function and no program; name a factory: {file}:NAME")
    if len(found) != 1:
        raise BadCommand(f"name one of {', '.join(found)}: {file}:NAME")
    return next(iter(found.values()))


def _is_program(value: Any) -> bool:
    from tvm import tirx

    from tilelang.autotuner import TunedJIT
    from tilelang.jit import JITImpl

    return isinstance(value, (JITImpl, TunedJIT, tirx.PrimFunc))


def _is_of(value: Any, module: str) -> bool:
    """Was it made by the module, and not imported by it? Programs do not know."""
    from tvm import tirx

    return isinstance(value, tirx.PrimFunc) or getattr(value, "__module__", module) == module


def _makes_program(value: Any) -> bool:
    """Is it a plain function with a T.prim_func inside: a factory that is not decorated?"""
    return inspect.isfunction(value) and "prim_func" in value.__code__.co_names


def load_program(where: str, settings: Sequence[str]) -> Any:
    """The tile program (PrimFunc) that `FILE.py:FACTORY` makes of these settings."""
    from tvm import tirx

    found = load_object(where)
    found = getattr(found, "impl", found)
    if isinstance(found, tirx.PrimFunc) and settings:
        raise BadCommand(f"{where} is a program, not a factory: it takes no --set")
    return program_of(where, found, arguments_for(where, found, settings) if callable(found) else {})


def program_of(where: str, found: Any, arguments: dict[str, Any]) -> Any:
    """The tile program itself, or what a factory makes of these arguments."""
    from tvm import tirx

    if isinstance(found, tirx.PrimFunc):
        return found
    if callable(found):
        made = call_users(where, getattr(found, "get_tir", found), arguments)
        if isinstance(made, tirx.PrimFunc):
            return made
    raise BadCommand(f"{where} makes no tile program")


def arguments_for(where: str, factory: Any, settings: Sequence[str]) -> dict[str, Any]:
    """The settings as arguments of a factory, checked against its signature."""
    arguments = parse_settings(settings)
    signature = getattr(factory, "signature", None) or inspect.signature(factory)
    # An eager function takes tensors, which are no settings, and the values of its constants besides.
    runtime = factory.eager.runtime if getattr(factory, "style", "") == "eager" else None
    _check_arguments(where, signature, arguments, runtime)
    if runtime is not None:
        missing = [c for c in factory.eager.constants(arguments) if c not in arguments]
        if missing:
            raise BadCommand(f"{where} needs --set for {', '.join(missing)}: constants that its tensors' shapes give")
    return arguments


def split_settings(where: str, found: Any, settings: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that are arguments of a factory, and the others: values of symbols and scalars of its kernel. What
    is no factory has none of the first kind."""
    from tvm import tirx

    given = parse_settings(settings)
    if isinstance(found, tirx.PrimFunc) or not callable(found):
        return {}, given
    signature = getattr(found, "signature", None) or inspect.signature(found)
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return arguments_for(where, found, settings), {}
    names = set(signature.parameters)
    eager: Any = getattr(found, "eager", None) if getattr(found, "style", "") == "eager" else None
    if eager is not None:
        names -= set(eager.runtime)
        own = {n: v for n, v in given.items() if n in names}
        _check_arguments(where, signature, own, eager.runtime)
        names |= set(eager.constants(own))
    return arguments_for(where, found, [s for s in settings if s.partition("=")[0].strip() in names]), {
        n: v for n, v in given.items() if n not in names
    }


def expect_values(where: str, found: Any, signature: Any, values: Mapping[str, Any]) -> None:
    """Raises BadCommand for the first setting that neither a factory nor its kernel has a name for."""
    from tilelang.runtime.signature import ScalarArg

    kernels = list(
        dict.fromkeys([*signature.slot_names, *(a.name for a in signature.args if isinstance(a, ScalarArg))])
    )
    unknown = next((n for n in values if n not in kernels), None)
    if unknown is None:
        return
    own = getattr(found, "signature", None) or (inspect.signature(found) if callable(found) else None)
    known = {n.lower(): n for n in (*kernels, *(own.parameters if own else ()))}
    near = difflib.get_close_matches(unknown.lower(), known, 1)
    if near:
        raise BadCommand(f"{where} has no parameter {unknown}; did you mean {known[near[0]]}?")
    parameters = f"its parameters: {own}; " if own else ""
    has = f"{parameters}symbols and scalars of its kernel: {', '.join(kernels) or 'none'}"
    raise BadCommand(f"{where} has no parameter {unknown}; {has}")


def call_users(where: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """The result of code of the user's. Its own exceptions become BadCommand; user errors pass."""
    from tilelang.support.env import BadVariable
    from tilelang.support.errors import InternalError, UserError

    try:
        return function(**arguments)
    except (UserError, InternalError, BadCommand, BadVariable):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if frames[-1].filename.startswith(PACKAGE) and not isinstance(error, ValueError | TypeError):
            raise  # ours: its traceback is worth having
        raise BadCommand(f"{where}: {_place(error)}{type(error).__name__}: {error}") from error


def _place(error: BaseException) -> str:
    """`line 7 of x.py: `, the innermost line of the traceback that is not of an installed package."""
    lines = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(NOT_THE_USERS)]
    return f"line {lines[-1].lineno} of {Path(lines[-1].filename).name}: " if lines else ""


def _check_arguments(
    where: str, signature: inspect.Signature, arguments: dict[str, Any], runtime: Sequence[str] | None
) -> None:
    parameters = signature.parameters.values()
    takes_any = runtime is not None or any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [] if takes_any else sorted(set(arguments) - set(signature.parameters))
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    given = {*arguments, *(runtime or ())}
    missing = [p.name for p in parameters if p.default is p.empty and p.kind in plain and p.name not in given]
    if unknown:
        raise BadCommand(f"{where} has no parameter {', '.join(unknown)}; its parameters: {signature}")
    if missing:
        raise BadCommand(f"{where} needs --set for {', '.join(missing)}; its parameters: {signature}")
