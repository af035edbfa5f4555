# SPDX-License-Identifier: Apache-2.0
"""The compile driver: a PrimFunc and choices go in, a kernel object comes out; equal requests share one kernel.

Requests are equal when the IR text, the outputs, the target, the pass configs and the flags are.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tilelang.ir import attrs
from tilelang.ir.stmts import as_list
from tilelang.jit.executable import Executable
from tilelang.jit.kernel import JITKernel
from tilelang.jit.pass_config import freeze_pass_configs, options_from
from tilelang.jit.postproc import cuda_hook
from tilelang.jit.signature import normalize_out_idx, signature_of
from tilelang.jit.target import resolve_target
from tilelang.runtime.signature import Signature
from tilelang.support.collector import collector_paused
from tilelang.support.env import env
from tilelang.support.logs import logger
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Target
from tilelang.tir_builder.outputs import check_outputs

__all__ = ["clear_memory_cache", "compile", "outputs_of", "par_compile", "rebuild", "run_parallel"]

_BACKENDS = frozenset({None, "auto", "tvm_ffi", "nvrtc", "cython", "ctypes", "dlpack", "torch", "cutedsl"})

_lock = threading.Lock()
_kernels: dict[Any, Future[JITKernel]] = {}


def compile(
    func: Any,
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: Any = None,
    target_host: Any = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
) -> JITKernel:
    """Compiles a tile program (`T.prim_func`), or gives the kernel that an equal request got before.

    `out_idx` names the parameters that are allocated and returned. `execution_backend` and `target_host` are
    accepted: there is one launcher. Raises `NotAProgram` where `func` is no PrimFunc, `ValueError` for a bad out_idx,
    target or pass config.
    """
    from tvm import tirx

    if not isinstance(func, tirx.PrimFunc):
        raise NotAProgram(_no_program(func))
    if execution_backend not in _BACKENDS:
        raise ValueError(f"unknown execution_backend {execution_backend!r}; there is one launcher, leave it out")
    outputs = outputs_of(func, out_idx)
    if out_idx is not None:
        check_outputs(as_list(func.body), [func.params[n] for n in outputs[: len(outputs) - hidden_outputs(func)]])
    where = resolve_target(target)
    options = _options_of(func, pass_configs, compile_flags)
    return _kernel(func, outputs, where, options, bool(verbose) or env.verbose.get())


def rebuild(program: str, outputs: tuple[int, ...], target: str, options: CompileOptions) -> JITKernel:
    """The kernel of a serialised program: what a pickled kernel becomes."""
    from tvm import ir

    return _kernel(ir.load_json(program), outputs, resolve_target(target), options, env.verbose.get())


def _kernel(func: Any, outputs: tuple[int, ...], where: Target, options: CompileOptions, verbose: bool) -> JITKernel:
    if cuda_hook() is not None:
        return _build(func, outputs, where, options, verbose)
    key = (func.script(show_meta=True), outputs, where, options)
    return _once(key, lambda: _build(func, outputs, where, options, verbose))


class NotAProgram(TypeError, AssertionError):
    """What `compile` was given is no PrimFunc. Callers of the language expect an AssertionError."""


def _no_program(func: Any) -> str:
    """What `compile` says of something that is no program."""
    text = f"tilelang.compile takes a T.prim_func, got {type(func).__name__}"
    name = getattr(func, "__name__", "")
    if isinstance(func, JITKernel):
        return f"{text}, which is compiled already: call it"
    if not callable(func) or not name:
        return text
    if hasattr(func, "with_options"):
        return f"{text} {name}: call it, {name}(...), which compiles; {name}.get_tir(...) gives the T.prim_func"
    return f"{text} {name}: pass what it returns, tilelang.compile({name}(...)), or decorate it with @tilelang.jit"


def _once(key: Any, build: Any) -> JITKernel:
    """The kernel of `key`; a second thread that asks while the first builds waits for it."""
    with _lock:
        future = _kernels.get(key)
        mine = future is None
        if mine:
            future = _kernels[key] = Future()
    assert future is not None
    if not mine:
        return future.result()
    try:
        kernel = build()
    except BaseException as error:
        with _lock:
            del _kernels[key]
        future.set_exception(error)
        raise
    future.set_result(kernel)
    return kernel


def clear_memory_cache() -> None:
    """Forgets the kernels that this process has compiled."""
    with _lock:
        _kernels.clear()


def outputs_of(func: Any, out_idx: int | Sequence[int] | None) -> tuple[int, ...]:
    """Positions of a program's outputs: those asked for, or the tensors that it returns."""
    hidden = hidden_outputs(func)
    total = len(func.params)
    return (*_visible_outputs(func, out_idx, total - hidden), *range(total - hidden, total))


def hidden_outputs(func: Any) -> int:
    """How many of a program's last parameters are workspaces."""
    return int(_declared(func, attrs.NUM_WORKSPACES, 0))


def _visible_outputs(func: Any, out_idx: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    returned = int(_declared(func, attrs.NUM_OUTPUTS, 0))
    if not returned:
        return normalize_out_idx(out_idx, count)
    if out_idx is not None:
        raise ValueError("out_idx is given, but the function returns its T.empty tensors; drop out_idx")
    return tuple(range(count - returned, count))


def _options_of(func: Any, pass_configs: Any, compile_flags: str | Sequence[str] | None) -> CompileOptions:
    """What the function declares and what the caller asks for; the caller wins, its compiler flags come last."""
    declared = freeze_pass_configs(json.loads(_declared(func, attrs.PASS_CONFIGS, "{}")))
    flags = [str(f) for f in _declared(func, attrs.COMPILE_FLAGS, [])]
    if not isinstance(compile_flags, str | list | tuple | None):
        raise TypeError(f"compile_flags is a string or a list of strings, got {type(compile_flags).__name__}")
    asked = compile_flags.split() if isinstance(compile_flags, str) else list(compile_flags or ())
    return options_from({**declared, **freeze_pass_configs(pass_configs)}, [*flags, *asked])


def _declared(func: Any, key: str, default: Any) -> Any:
    """A function attribute of the front end."""
    return func.attrs[key] if func.attrs is not None and key in func.attrs else default


def _build(func: Any, outputs: tuple[int, ...], target: Target, options: CompileOptions, verbose: bool) -> JITKernel:
    signature, _ = signature_of(func, outputs)
    signature = replace(signature, hidden=hidden_outputs(func))
    if verbose or env.print_on_compilation.get():
        logger.info("compile %s for %s", signature.describe(), target)
    if options.print_program:
        logger.warning("%s", func.script())
    with collector_paused():
        executable = _executable(func, signature, target, options)
    return JITKernel(func, signature, target, options, executable)


def _executable(func: Any, signature: Signature, target: Target, options: CompileOptions) -> Executable:
    if target.kind == "cpu":
        from tilelang.jit.backend_cpu import CpuExecutable

        return CpuExecutable(func, signature)
    if target.kind == "sim":
        from tilelang.jit.backend_sim import SimExecutable

        return SimExecutable(func, signature, target, options)
    from tilelang.jit.backend_cuda import CudaExecutable

    return CudaExecutable.build(func, signature, target, options)


def par_compile(
    funcs: Iterable[Any],
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: Any = None,
    target_host: Any = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
    num_workers: int | None = None,
    ignore_error: bool = False,
) -> list[JITKernel | None]:
    """Compiles several programs in threads, in order; with `ignore_error` a failed entry is None and its error is
    logged.
    """
    requests = list(funcs)

    def one(func: Any) -> JITKernel:
        return compile(func, out_idx, execution_backend, target, target_host, verbose, pass_configs, compile_flags)

    return run_parallel([lambda f=f: one(f) for f in requests], num_workers, ignore_error)


def run_parallel(jobs: Sequence[Any], num_workers: int | None, ignore_error: bool) -> list[Any]:
    """Results of the jobs, in order. Without `ignore_error` the first failure is raised after all have ended."""
    if not jobs:
        return []
    workers = num_workers or min(len(jobs), len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(job) for job in jobs]
    results: list[Any] = []
    for future in futures:
        error = future.exception()
        if error is None:
            results.append(future.result())
        elif ignore_error and isinstance(error, Exception):
            logger.warning("compilation failed: %s", error)
            results.append(None)
        else:
            raise error
    return results
