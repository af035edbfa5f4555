# SPDX-License-Identifier: Apache-2.0
"""Finds the tile program that a command line names: `FILE.py:FACTORY` with `--set NAME=VALUE` for its arguments."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["BadCommand", "load_object", "load_program", "parse_settings"]


class BadCommand(Exception):
    """The command line names something that is not there; the text is all that the user needs to see."""


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`["M=4096", "dtype=bfloat16"]` as arguments: Python literals where they read as such, else text."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.strip().isidentifier():
            raise BadCommand(f"--set takes NAME=VALUE, got {setting!r}")
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
    spec.loader.exec_module(module)
    found = {
        k: v for k, v in vars(module).items() if _is_program(v) and getattr(v, "__module__", path.stem) == path.stem
    }
    if name:
        if not hasattr(module, name):
            raise BadCommand(f"{file} has no {name!r}; it has {_names(found)}")
        return getattr(module, name)
    if len(found) != 1:
        raise BadCommand(f"name one of {_names(found)}: {file}:NAME")
    return next(iter(found.values()))


def _names(found: dict[str, Any]) -> str:
    return ", ".join(found) or "no jit function"


def _is_program(value: Any) -> bool:
    from tvm import tirx

    from tilelang.autotuner import TunedJIT
    from tilelang.jit import JITImpl

    return isinstance(value, (JITImpl, TunedJIT, tirx.PrimFunc))


def load_program(where: str, settings: Sequence[str]) -> Any:
    """The tile program (PrimFunc) that `FILE.py:FACTORY` makes of these settings."""
    from tvm import tirx

    found, arguments = load_object(where), parse_settings(settings)
    found = getattr(found, "impl", found)
    if isinstance(found, tirx.PrimFunc):
        if arguments:
            raise BadCommand(f"{where} is a program, not a factory: it takes no --set")
        return found
    if hasattr(found, "get_tir"):
        _check_arguments(where, found.signature, arguments)
        return found.get_tir(**arguments)
    if callable(found):
        _check_arguments(where, inspect.signature(found), arguments)
        made = found(**arguments)
        if isinstance(made, tirx.PrimFunc):
            return made
    raise BadCommand(f"{where} makes no tile program")


def _check_arguments(where: str, signature: inspect.Signature, arguments: dict[str, Any]) -> None:
    parameters = signature.parameters.values()
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [] if takes_any else sorted(set(arguments) - set(signature.parameters))
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [p.name for p in parameters if p.default is p.empty and p.kind in plain and p.name not in arguments]
    if unknown:
        raise BadCommand(f"{where} has no parameter {', '.join(unknown)}; its parameters: {signature}")
    # Tensors of an eager function are no settings: only what the function cannot do without is reported by it.
    if missing and "Tensor" not in str(signature):
        raise BadCommand(f"{where} needs --set for {', '.join(missing)}; its parameters: {signature}")
