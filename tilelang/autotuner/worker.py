# SPDX-License-Identifier: Apache-2.0
"""Compiles candidate kernels in processes of their own.

A compilation is mostly Python and holds the interpreter lock, so threads do not help. Each worker is a fresh
interpreter that gets tile programs as serialised IR: the user's file is never imported a second time. It leaves the
compiled kernel in the disk cache, where the parent then finds it; only success or the error's text travels back.

The two sides talk in length-prefixed pickles over the worker's stdin and stdout.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

__all__ = ["compile_in_processes"]

_LENGTH = struct.Struct("<Q")


def _send(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(_LENGTH.unpack(head)[0]))


class _Worker:
    """One worker process; started on its first job, killed and started anew after a timeout."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, job: tuple[str, Mapping[str, Any]], timeout_s: float) -> str:
        """Compile one program; the error's text, or "" on success."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            _send(process.stdin, job)
            return _receive(process.stdout)
        except (EOFError, BrokenPipeError):
            self.close()
            return f"compilation was ended after {timeout_s:g} s, or crashed"
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def compile_in_processes(
    programs: Sequence[Any], options: Sequence[Mapping[str, Any]], num_workers: int, timeout_s: float
) -> list[str]:
    """Compile each PrimFunc into the disk cache with its options; an error text each, "" where it worked."""
    from tvm import ir

    jobs = [(ir.save_json(program), dict(option)) for program, option in zip(programs, options, strict=True)]
    local = threading.local()
    workers: list[_Worker] = []

    def one(job: tuple[str, dict[str, Any]]) -> str:
        if not hasattr(local, "worker"):
            local.worker = _Worker()
            workers.append(local.worker)
        return local.worker.run(job, timeout_s)

    try:
        with ThreadPoolExecutor(max_workers=max(1, min(num_workers, len(jobs)))) as pool:
            return list(pool.map(one, jobs))
    finally:
        for worker in workers:
            worker.close()


def serve() -> None:
    """The worker's side: compile what arrives on stdin until it closes."""
    # Whatever a compiler prints must not end up between our messages.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    from tvm import ir

    import tilelang

    warnings.simplefilter("ignore", tilelang.PerformanceWarning)  # no candidate needs its slow lines
    while True:
        try:
            text, option = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            tilelang.compile(ir.load_json(text), **option)
        except Exception as error:  # the boundary of a measured candidate: recorded, never fatal
            _send(answers, f"{type(error).__name__}: {error}")
        else:
            _send(answers, "")
