# SPDX-License-Identifier: Apache-2.0
"""The second process: compiles, checks and times programs for second_process.py, one request at a time.

    python serve.py FOLDER

FOLDER holds the package `tilelang` to be used, and comes before everything else on the path. Requests and answers are
lines of JSON on standard input and output; the first answer says that the package is imported.

    {"do": "set_up", "file", "factory", "arguments", "choices", "inputs", "want", "limit", "clock"}
                                           -> {"key", "error", "note", "uncaptured"}
    {"do": "sample", "key"}                -> {"ms"}
    {"do": "sustained", "key", "seconds"}  -> {"ms"}
    {"do": "drop", "key"}                  -> {}

Where a request fails, the answer is {"failure": text}. Nothing runs between a request's answer and the next request.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from suite import protocol
from suite.contest import relative_error
from suite.shared_tensors import read

PROBES = 2  # bursts that decide between choices
MAX_TEXT = 1500  # of a failure


class Programs:
    """What the requests do. `key` is the number of a program that is set up."""

    def __init__(self) -> None:
        self.ready: dict[int, protocol.Timed] = {}
        self.count = 0

    def set_up(
        self,
        file: str,
        factory: str,
        arguments: dict[str, Any],
        choices: list[dict[str, Any]] | None,
        inputs: list[list[dict[str, Any]]],
        want: Any,
        limit: float,
        clock: dict[str, Any],
    ) -> dict[str, Any]:
        """Sets up the fastest of the `choices` that are right. Without any given, the program file names them.

        Raises RuntimeError where none is right.
        """
        module = _module(Path(file))
        several = choices or getattr(module, f"choices_{factory}")(**arguments)
        kernels, rejected = _compiled(getattr(module, factory), arguments, several)
        sets, wanted = [[read(tensor) for tensor in one] for one in inputs], _read_all(want)
        made = getattr(protocol, clock.pop("kind"))(**clock)
        best: tuple[float, dict[str, Any], protocol.Timed] | None = None
        for choice, kernel in kernels:
            try:
                timed = made.start([_call(kernel, tensors) for tensors in sets])
                timed.error = relative_error(timed.outputs, wanted)
                if not timed.error < limit:
                    raise ArithmeticError(f"relative error {timed.error:.2e}, limit {limit:.1e}")
                timed.outputs = None
                ms = min(timed.sample() for _ in range(PROBES)) if len(kernels) > 1 else 0.0
            except Exception as failure:
                if protocol.is_lost():
                    raise
                rejected[_shown(choice)] = _text(failure)
                continue
            if best is None or ms < best[0]:
                best = (ms, choice, timed)
        if best is None:
            raise RuntimeError("; ".join(f"{choice}: {why}" for choice, why in rejected.items()))
        _, choice, timed = best
        self.count += 1
        self.ready[self.count] = timed
        note = "; ".join([_shown(choice), *(f"not {key}: {why}" for key, why in rejected.items())])
        return {"key": self.count, "error": timed.error, "note": note, "uncaptured": timed.uncaptured}

    def sample(self, key: int) -> dict[str, Any]:
        return {"ms": self.ready[key].sample()}

    def sustained(self, key: int, seconds: float) -> dict[str, Any]:
        return {"ms": protocol.sustained_ms(self.ready[key], seconds)}

    def drop(self, key: int) -> dict[str, Any]:
        del self.ready[key]
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return {}


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a compiler may look for the source
    spec.loader.exec_module(module)
    return module


def _compiled(
    factory: Any, arguments: dict[str, Any], choices: list[dict[str, Any]]
) -> tuple[list[tuple[dict[str, Any], Any]], dict[str, str]]:
    """(choice, kernel) of those that compile, and why others do not by the text of the choice."""
    kernels = [None] * len(choices)
    if len(choices) > 1:
        kernels = factory.par_compile([{**arguments, **choice} for choice in choices], ignore_error=True)
    found, rejected = [], {}
    for choice, kernel in zip(choices, kernels, strict=True):
        try:
            found.append((choice, kernel or factory(**arguments, **choice)))  # again by itself for its error
        except Exception as failure:
            rejected[_shown(choice)] = _text(failure)
    return found, rejected


def _call(kernel: Any, tensors: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A call that gives the kernel's last output, or its last argument where it returns none."""

    def call() -> torch.Tensor:
        out = kernel(*tensors)
        if isinstance(out, torch.Tensor):
            return out
        return out[-1] if out else tensors[-1]

    return call


def _shown(choice: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in choice.items())


def _read_all(want: Any) -> Any:
    return [read(tensor) for tensor in want] if isinstance(want, list) else read(want)


def _text(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {str(failure)[-MAX_TEXT:]}"


def _import_from(folder: Path) -> str:
    """Imports the package; its version. Raises ImportError where it does not come from the folder."""
    import tilelang

    found = Path(str(tilelang.__file__)).resolve()
    if not found.is_relative_to(folder):
        raise ImportError(f"tilelang was found at {found}, not in {folder}")
    return str(tilelang.__version__)


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive the process that measures
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a compiler prints is no answer

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")

    try:
        answer(version=_import_from(Path(sys.argv[1]).resolve()))
    except Exception as failure:
        answer(failure=_text(failure))
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    if torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.Stream())  # what is captured must not touch the default stream
    programs = Programs()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(**getattr(programs, request.pop("do"))(**request))
        except Exception as failure:
            answer(failure=_text(failure))
            if protocol.is_lost():  # nothing more can run in this process
                return


if __name__ == "__main__":
    main()
