# SPDX-License-Identifier: Apache-2.0
"""The names of the language for people: docs/names.md, one row a name, made of signatures and docstrings."""

from __future__ import annotations

import inspect
import sys
from enum import EnumMeta
from typing import Any

import tilelang.language as T
from tilelang.tir_builder.dtypes import DTYPE_NAMES

__all__ = ["names_page"]

_INTRODUCTION = """# The names of the language

Everything that programs write as `T.*` (`import tilelang.language as T`), by the module that defines it.
[language/](language/README.md) says what they mean, by theme, and [has an example of each](language/index.md).
"""


def names_page() -> str:
    """The page as Markdown."""
    sections: dict[str, list[str]] = {}
    for name in sorted(set(T.__all__) - set(DTYPE_NAMES), key=lambda n: (n.lower(), n)):
        value = getattr(T, name)
        module = getattr(value, "__module__", "") or type(value).__module__
        sections.setdefault(_title(module), []).append(f"| `T.{name}{_signature(value)}` | {_first_line(value)} |")
    parts = [_INTRODUCTION]
    for title in sorted(sections):
        parts += [f"## {title}\n", "| name | meaning |\n|---|---|", "\n".join(sections[title]), ""]
    scalars = ", ".join(f"`{n}`" for n in DTYPE_NAMES if "x" not in n)
    parts += ["## Element types\n", f"{scalars}; vectors of 2 to 64 of them, such as `float16x2`.\n"]
    parts += ["## Names that are refused\n", "| name | instead |\n|---|---|"]
    parts += [f"| `T.{name}` | {instead} |" for name, instead in sorted(T.unsupported_names().items())]
    return "\n".join(parts) + "\n"


def _title(module: str) -> str:
    """The first sentence of a module's docstring, up to its first colon."""
    doc = inspect.getdoc(sys.modules[module]) if module in sys.modules else None
    return (doc or "Other names").split("\n\n")[0].replace("\n", " ").split(":")[0].rstrip(".")


def _signature(value: Any) -> str:
    """The parameters with their defaults; nothing for what is not called."""
    target = type(value).__call__ if not inspect.isroutine(value) and not inspect.isclass(value) else value
    try:
        parameters = [p for p in inspect.signature(target).parameters.values() if p.name != "self"]
    except (TypeError, ValueError):
        return ""
    if not callable(value) or isinstance(value, str | EnumMeta):
        return ""
    plain = [p.replace(annotation=p.empty) for p in parameters]
    text = str(inspect.Signature(plain))
    return text.replace("<GemmWarpPolicy.Square: 'square'>", "GemmWarpPolicy.Square").replace("|", "\\|")


def _first_line(value: Any) -> str:
    """The first sentence of a docstring."""
    doc = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return doc.replace("|", "\\|")
