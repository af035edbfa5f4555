# SPDX-License-Identifier: Apache-2.0
"""What every pass made of a program: which ones changed it, how, and how long each took.

`lower_trace` runs the passes and keeps the program behind each; where one of them fails, what was made up to there is
the trace, with the error. `pass_diff` is the difference that one pass makes. To have the same of a kernel as files,
compile it with `tl.enable_dump_ir`.
"""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang.jit.pass_config import options_from
from tilelang.support.errors import InternalError, UserError
from tilelang.target.arch import DEFAULT_CUDA, Arch, arch_of
from tilelang.transform.pipeline import PIPELINE, Context, Pass, lower

__all__ = ["Step", "Trace", "lower_trace", "pass_diff"]


@dataclass(frozen=True)
class Step:
    """One pass: the program's text in front of it and behind it, and the time that it took."""

    name: str
    level: str
    why: str
    before: str
    after: str
    seconds: float

    @property
    def is_change(self) -> bool:
        return self.before != self.after

    def diff(self, context: int = 3) -> str:
        """The lines that the pass changed, as a unified diff with `context` lines around; empty where it changed
        nothing."""
        names = f"in front of {self.name}", f"behind {self.name}"
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), *names, n=context, lineterm="")
        return "\n".join(lines)

    def counts(self) -> tuple[int, int]:
        """Lines added and lines taken away."""
        marks = [line[0] for line in self.diff(0).splitlines()[2:] if line]
        return marks.count("+"), marks.count("-")


@dataclass(frozen=True)
class Trace:
    """All passes that ran, in order. `error` is what the last one raised, None where all went through."""

    name: str
    steps: tuple[Step, ...]
    error: Exception | None = None

    @property
    def changes(self) -> list[Step]:
        """The passes that changed the program."""
        return [step for step in self.steps if step.is_change]

    def step(self, name: str) -> Step:
        """The pass of that name. Raises `ValueError` for one that did not run, naming the nearest."""
        for step in self.steps:
            if step.name == name:
                return step
        near = difflib.get_close_matches(name, [step.name for step in self.steps], 1)
        hint = f"did you mean {near[0]}?" if near else "`tilelang passes` lists them"
        if any(step.name == name for passes in PIPELINE.values() for step in passes):
            hint = "the passes ended in front of it"
        raise ValueError(f"no pass {name} ran; {hint}")

    def lines(self, every: bool = False) -> Iterator[str]:
        """A line a pass that changed the program, or for `every` one: name, level, lines added and taken away, time."""
        for step in self.steps if every else self.changes:
            added, removed = step.counts()
            yield f"{step.name:24s} {step.level:10s} +{added:<5d} -{removed:<5d} {step.seconds * 1e3:8.1f} ms"
        if self.error is not None:
            yield f"then: {_first_line(self.error)}"

    def write_html(self, path: str | Path) -> Path:
        """Writes a page with the difference of every pass, side by side; returns its path."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(self._page()), encoding="utf-8")
        return target

    def _page(self) -> Iterator[str]:
        yield f"<!doctype html><meta charset='utf-8'><title>{html.escape(self.name)}</title><style>{_STYLE}</style>"
        yield f"<h1>{html.escape(self.name)}</h1>"
        if self.error is not None:
            yield f"<pre class='error'>{html.escape(str(self.error))}</pre>"
        table = difflib.HtmlDiff(wrapcolumn=90)
        for step in self.steps:
            title = f"{step.name} <small>to {step.level}, {step.seconds * 1e3:.1f} ms: {html.escape(step.why)}</small>"
            if not step.is_change:
                yield f"<p class='same'>{title}: no change</p>"
                continue
            added, removed = step.counts()
            yield f"<details><summary>{title} <b>+{added} -{removed}</b></summary>"
            yield table.make_table(step.before.splitlines(), step.after.splitlines(), context=True, numlines=3)
            yield "</details>"


_STYLE = """body{font:14px sans-serif;margin:2em} td{font:12px monospace;white-space:pre;vertical-align:top}
table.diff{border-collapse:collapse} .diff_header{color:#888;padding:0 .5em} .diff_next{display:none}
.diff_add{background:#cfc} .diff_sub{background:#fcc} .diff_chg{background:#ffb} .same{color:#888}
summary{cursor:pointer;margin:.3em 0} .error{background:#fee;padding:1em}"""


def lower_trace(
    func: Any,
    arch: Arch | str = DEFAULT_CUDA,
    pass_configs: Mapping[Any, Any] | None = None,
    stop_after: str = "device",
) -> Trace:
    """The passes of a tile program (or of a kernel's) for an architecture, up to a level (`tilelang passes`).

    A program that a pass refuses has a trace too, up to there. Raises `ValueError` for an unknown level or pass config.
    """
    program = getattr(func, "prim_func", func)
    texts, found = [program.script()], []

    def watch(level: str, step: Pass, after: Any) -> None:
        texts.append(after.script())
        found.append((level, step))

    options = options_from(pass_configs)
    context = Context(arch_of(arch), options, watch=watch)
    error: Exception | None = None
    try:
        lower(program, context.arch, options, stop_after, context)
    except (UserError, InternalError) as raised:
        error = raised
    steps = tuple(
        Step(step.name, level, step.why, before, after, context.seconds[step.name])
        for (level, step), before, after in zip(found, texts, texts[1:])
    )
    return Trace(str((program.attrs or {}).get("global_symbol", "program")), steps, error)


def pass_diff(
    func: Any,
    name: str,
    arch: Arch | str = DEFAULT_CUDA,
    pass_configs: Mapping[Any, Any] | None = None,
    context: int = 3,
) -> str:
    """What one pass changes in a program, as a unified diff; empty where that is nothing. Raises `ValueError` for a
    pass that did not run, and the error of the pass in front of it that failed."""
    trace = lower_trace(func, arch, pass_configs)
    if trace.error is not None and all(step.name != name for step in trace.steps):
        raise trace.error
    return trace.step(name).diff(context)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
