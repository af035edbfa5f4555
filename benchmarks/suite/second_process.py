# SPDX-License-Identifier: Apache-2.0
"""A contestant that lives in a second Python process: a compiler whose package has our package's name.

It gets the inputs and the reference through shared memory, checks its programs itself (serve.py) and then takes its
turns through a pipe: while one process runs, the other waits. Its programs are those of public_programs/, written in
the language that both compilers read.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from . import shared_tensors
from .protocol import Clock, Timed

__all__ = ["PROGRAMS", "VARIABLE", "Program", "SecondProcess", "why_absent"]

VARIABLE = "PUBLIC_TILELANG"  # the folder of the package, where no option names it
PROGRAMS = Path(__file__).resolve().parent / "public_programs"
START_S, SET_UP_S, SAMPLE_S = 60.0, 120.0, 20.0  # without an answer for longer it is taken to hang
ALIVE_S = 1.0
MAX_TEXT = 300  # of what it left in its error output


def why_absent(folder: str) -> str:
    """Why the contestant is left out, "" where it can be had from this folder."""
    if not folder:
        return f"no folder of its package is given (--peer or {VARIABLE})"
    return "" if (Path(folder) / "tilelang").is_dir() else f"{folder} has no package tilelang"


class SecondProcess:
    """The process, started when it is first asked and again after it died. Closed with its parent at the latest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None

    def version(self) -> str:
        """Of the package, by its metadata; "" where it has none."""
        found = importlib.metadata.distributions(name="tilelang", path=[str(self.folder)])
        return next((package.version for package in found), "")

    def environment(self) -> dict[str, str]:
        """Variables for a process that imports the package: the folder alone on the path, and no option of ours."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TILELANG_", "TL_", "TVM_"))}
        return {**kept, "PYTHONPATH": str(self.folder)}

    def ask(self, do: str, within_s: float, alive: Callable[[], None] = lambda: None, **request: Any) -> dict[str, Any]:
        """The answer to a request. `alive` is called every second of waiting. Raises RuntimeError with the failure's
        text; a process that died or does not answer in time is gone then."""
        if self._process is None or self._process.poll() is not None:
            self._start(alive)
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # _answer says how it ended
        return self._answer(within_s, alive)

    def drop(self, key: int) -> None:
        """Ends the turns of a program; its tensors go."""
        if self._process is not None:
            try:
                self.ask("drop", SAMPLE_S, key=key)
            except RuntimeError:  # without a process they are gone as well
                self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._errors.close()
            self._process = None

    def _start(self, alive: Callable[[], None]) -> None:
        self.close()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("serve.py")), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self.environment(),
        )
        self._answer(START_S, alive)

    def _answer(self, within_s: float, alive: Callable[[], None]) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        end = time.monotonic() + within_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not selector.select(ALIVE_S):
                alive()
                if time.monotonic() > end:
                    self.close()
                    raise RuntimeError(f"no answer after {within_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()[-MAX_TEXT:]
            self.close()
            raise RuntimeError(f"the second process ended with {code}: {said}")
        answer = json.loads(line)
        if "failure" in answer:
            raise RuntimeError(answer["failure"])
        return answer


@dataclass(frozen=True)
class Program:
    """A program of the second process: `factory` in public_programs/FILE.py, with its compile-time `arguments`.

    The kernel takes `inputs`, and where inputs rotate, those of `others` after them. Its last output counts, or its
    last input where it returns none. Of `choices`, by default those that the file has for the factory, the fastest that
    is right takes the turns.
    """

    process: SecondProcess
    file: str
    factory: str
    arguments: dict[str, Any]
    inputs: Sequence[torch.Tensor]
    choices: list[dict[str, Any]] | None = None
    others: Sequence[Sequence[torch.Tensor]] = ()
    folder: Path = field(default=PROGRAMS)

    def start(self, clock: Clock, want: Any, limit: float, alive: Callable[[], None] = lambda: None) -> Timed:
        """Ready to be timed. Raises RuntimeError where no choice compiles and is right."""
        several = isinstance(want, tuple | list)
        sets = [self.inputs, *self.others]
        with shared_tensors.folder([*chain(*sets), *(want if several else [want])]) as shared:

            def put(name: str, tensor: torch.Tensor) -> dict[str, Any]:
                return shared_tensors.write(Path(shared) / name, tensor)

            answer = self.process.ask(
                "set_up",
                SET_UP_S,
                alive,
                file=str(self.folder / f"{self.file}.py"),
                factory=self.factory,
                arguments=self.arguments,
                choices=self.choices,
                inputs=[[put(f"in{s}_{i}", t) for i, t in enumerate(inputs)] for s, inputs in enumerate(sets)],
                want=[put(f"want{i}", tensor) for i, tensor in enumerate(want)] if several else put("want", want),
                limit=limit,
                clock={"kind": type(clock).__name__, **vars(clock)},
            )
        key = answer["key"]
        return Timed(
            outputs=None,
            sample=lambda: self.process.ask("sample", SAMPLE_S, key=key)["ms"],
            replay=_elsewhere,
            uncaptured=answer["uncaptured"],
            note=answer["note"],
            error=answer["error"],
            sustained=lambda seconds: self.process.ask("sustained", SAMPLE_S, key=key, seconds=seconds)["ms"],
            close=lambda: self.process.drop(key),
        )


def _elsewhere() -> None:
    raise RuntimeError("the calls of another process cannot be run in this one")
