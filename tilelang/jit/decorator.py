# SPDX-License-Identifier: Apache-2.0
"""`@tilelang.jit`: specialise a Python function to its compile-time arguments, compile it once for each, run it.

Two styles. *Lazy*: the function is a factory that returns a `T.prim_func`; calling it gives a `JITKernel`. *Eager*:
the function is the kernel itself; calling it with tensors compiles where needed, runs and returns the outputs
(`tilelang.jit.eager`). The style is told on first use: a `T.prim_func` in the source, or a PrimFunc as result, means
lazy.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, overload

from tilelang.jit.driver import compile as compile_prim_func
from tilelang.jit.driver import run_parallel
from tilelang.jit.freeze import freeze
from tilelang.jit.kernel import JITKernel
from tilelang.jit.pass_config import freeze_pass_configs
from tilelang.jit.target import resolve_target

__all__ = ["JITImpl", "JITOptions", "jit"]


@dataclass(frozen=True)
class JITOptions:
    """Arguments of the decorator."""

    out_idx: Any = None
    target: Any = None
    target_host: Any = None
    execution_backend: str | None = None
    verbose: bool | None = None
    pass_configs: Mapping[Any, Any] | None = None
    debug_root_path: str | None = None
    compile_flags: str | Sequence[str] | None = None

    def compile(self, func: Any) -> JITKernel:
        kernel = compile_prim_func(
            func,
            out_idx=self.out_idx,
            execution_backend=self.execution_backend,
            target=self.target,
            target_host=self.target_host,
            verbose=self.verbose,
            pass_configs=self.pass_configs,
            compile_flags=self.compile_flags,
        )
        if self.debug_root_path is not None:
            _dump(kernel, Path(self.debug_root_path).resolve())
        return kernel


_OPTIONS = frozenset(f.name for f in fields(JITOptions))


class JITImpl:
    """What the decorator makes of a function."""

    def __init__(self, func: Callable[..., Any], options: JITOptions) -> None:
        functools.update_wrapper(self, func)
        self.func = func
        self.options = options
        self.signature = inspect.signature(func)
        self._kernels: dict[Any, JITKernel] = {}
        self._eager: Any = None
        self._style: str | None = None

    @property
    def style(self) -> str:
        """`lazy` or `eager`."""
        if self._style is None:
            from tilelang.jit.eager import is_eager

            lazy = _holds_prim_func(self.func) or not is_eager(self.func)
            self._style = "lazy" if lazy else "eager"
            if self._style == "eager" and self.options.out_idx is not None:
                raise ValueError(
                    f"{self.func.__name__}: out_idx belongs to functions that return a T.prim_func; "
                    "here allocate the output with T.empty and return it"
                )
        return self._style

    @property
    def eager(self) -> Any:
        """The eager side of this function."""
        if self._eager is None:
            from tilelang.jit.eager import EagerFunction

            self._eager = EagerFunction(self.func, self.options)
        return self._eager

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.style == "eager":
            return self.eager(*args, **kwargs)
        return self.compile(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for these compile-time arguments."""
        if self.style == "eager":
            return self.eager.compile(*args, **kwargs)
        # The target is part of the key since it may come from the environment, which tests and users change.
        key = (freeze(args), freeze(kwargs), str(resolve_target(self.options.target)))
        kernel = self._kernels.get(key) if _is_hashable(key) else None
        if kernel is None:
            kernel = self._kernels[key] = self.options.compile(self.get_tir(*args, **kwargs))
        return kernel

    def get_tir(self, *args: Any, **kwargs: Any) -> Any:
        """The tile program for these compile-time arguments. Raises `TypeError` where the function returns none."""
        if self.style == "eager":
            return self.eager.get_tir(*args, **kwargs)
        from tvm import tirx

        self.check_call(args, kwargs)
        result = self.func(*args, **kwargs)
        if not isinstance(result, tirx.PrimFunc):
            raise TypeError(f"{self.func.__name__} must return a T.prim_func, got {type(result).__name__}")
        return result

    def check_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raises `TypeError` for arguments that the function does not take, and says where options belong."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            name = self.func.__name__
            option = next((k for k in kwargs if k not in self.signature.parameters and k in _OPTIONS), None)
            hint = f"parameters are {self.signature}"
            if option is not None:
                hint = f"{option} is an option of the decorator, @tilelang.jit({option}=...), or {name}.with_options"
            raise TypeError(f"{name}(): {error}; {hint}") from None

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        return self.compile(*args, **kwargs).get_kernel_source()

    def par_compile(
        self,
        configs: Sequence[Mapping[str, Any] | Sequence[Any]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[JITKernel | None]:
        """Kernels for several argument sets, each a dictionary of keywords or a tuple of positional arguments."""

        def one(config: Any) -> JITKernel:
            if not isinstance(config, Mapping | list | tuple):
                raise TypeError(f"a configuration is a dictionary or a tuple, got {type(config).__name__}")
            return self.compile(**config) if isinstance(config, Mapping) else self.compile(*config)

        return run_parallel([lambda c=c: one(c) for c in configs], num_workers, ignore_error)

    def with_options(self, **changes: Any) -> JITImpl:
        """The same function under other decorator arguments, with kernels of its own."""
        return JITImpl(self.func, replace(self.options, **changes))


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _holds_prim_func(func: Callable[..., Any]) -> bool:
    """Whether the source has an inner function decorated as `T.prim_func`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(func)))
    except (OSError, TypeError, SyntaxError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if (isinstance(called, ast.Attribute) and called.attr == "prim_func") or (
                isinstance(called, ast.Name) and called.id == "prim_func"
            ):
                return True
    return False


def _dump(kernel: JITKernel, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = kernel.signature.name
    (folder / f"{name}.py").write_text(kernel.prim_func.script())
    suffix = "cu" if kernel.target.kind == "cuda" else "txt"
    (folder / f"{name}.{suffix}").write_text(kernel.get_kernel_source())


@overload
def jit(func: Callable[..., Any]) -> JITImpl: ...


@overload
def jit(
    func: None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: Any = None,
    target_host: Any = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: str | Sequence[str] | None = None,
) -> Callable[[Callable[..., Any]], JITImpl]: ...


def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: Any = None,
    target_host: Any = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: str | Sequence[str] | None = None,
) -> Any:
    """Compiles a function for each set of compile-time arguments; works bare or with arguments.

    `out_idx` names the parameters of a lazy function's kernel that are allocated and returned. Raises `TypeError` for
    something that is no function, `ValueError` for an unknown pass config.
    """
    freeze_pass_configs(pass_configs)
    options = JITOptions(
        out_idx, target, target_host, execution_backend, verbose, pass_configs, debug_root_path, compile_flags
    )
    if func is None:
        return lambda f: jit_function(f, options)
    return jit_function(func, options)


def jit_function(func: Callable[..., Any], options: JITOptions) -> JITImpl:
    """The decorator's work, options made."""
    if not callable(func):
        raise TypeError(f"tilelang.jit decorates a function, got {type(func).__name__}")
    if hasattr(func, "impl"):
        raise TypeError(f"tilelang.jit stands below tilelang.autotune: {func.__name__} is tuned already")
    return JITImpl(func, options)
