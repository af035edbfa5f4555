# SPDX-License-Identifier: Apache-2.0
"""Import paths of public TileLang that are other ones here: `tilelang.language.copy_op` is `tilelang.language`.

One table says which module a path stands for; what is below it follows (`tilelang.tvm.script` is `tvm.script`). An
imported path is that very module: there is nothing of its own to load. Another table says what to write instead of
paths and names that have no meaning here; these are an ImportError with that text.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["install", "lazy_names", "refused_paths", "stands_for_another"]

_LANGUAGE = (
    "annotations", "ast", "atomic", "builtin", "copy_op", "customize", "eager", "experimental", "experimental.gemm_sp",
    "fill_op", "gemm_op", "logical", "loop", "math_intrinsics", "parser", "print_op", "proxy", "reduce_op",
    "symbolics", "tir", "utils", "v2", "warpgroup",
)  # fmt: skip

_STANDS_FOR = {
    "tilelang.autotuner.capture": "tilelang.autotuner",
    "tilelang.autotuner.param": "tilelang.autotuner",
    "tilelang.autotuner.tuner": "tilelang.autotuner",
    "tilelang.carver.arch.cuda": "tilelang.carver.arch",
    "tilelang.dtypes": "tilelang.language.dtypes",
    "tilelang.engine.callback": "tilelang.engine",
    "tilelang.engine.param": "tilelang.engine",
    "tilelang.intrinsics.mma_layout": "tilelang.intrinsics",
    "tilelang.intrinsics.utils": "tilelang.intrinsics",
    "tilelang.layout.fragment": "tilelang.layout",
    "tilelang.layout.layout": "tilelang.layout",
    "tilelang.quantize.mxfp": "tilelang.quantize",
    "tilelang.quantize.quantization": "tilelang.quantize",
    "tilelang.quantize.utils": "tilelang.quantize",
    "tilelang.testing.perf_regression": "tilelang.testing",
    "tilelang.tileop": "tilelang.language",
    "tilelang.tileop.base": "tilelang.language",
    "tilelang.transform.pass_config": "tilelang.jit.pass_config",
    "tilelang.transform.simplify": "tilelang.transform",
    "tilelang.tvm": "tvm",
    "tilelang.version": "tilelang",
    **{f"tilelang.language.{name}": "tilelang.language" for name in _LANGUAGE},
}

_OF_THE_LANGUAGE = "its function has the same name: from tilelang.language import {}"
_INSTEAD = {
    "tilelang.autodd": "`tilelang autodd FILE.py --error TEXT` is the command",
    "tilelang.carver.roller.policy": "ask a template: MatmulTemplate(...).with_arch(CUDA('cuda')).recommend_hints()",
    "tilelang.carver.utils": "ask a template: MatmulTemplate(...).with_arch(CUDA('cuda')).recommend_hints()",
    "tilelang.contrib.cutedsl": "kernels are CUDA C++; leave the backend out",
    "tilelang.contrib.dlpack": "call the kernel with torch tensors",
    "tilelang.contrib.hipcc": "AMD devices are not supported",
    "tilelang.contrib.rocm": "AMD devices are not supported",
    "tilelang.engine.lower": "from tilelang.engine import lower, or tilelang.lower",
    "tilelang.engine.phase": "`tilelang passes` lists the passes, tilelang.transform.pipeline.lower runs them",
    "tilelang.intrinsics.mma_macro_generator": "T.gemm chooses mma.sync or wgmma, and loads its operands",
    "tilelang.intrinsics.wgmma_macro_generator": "T.gemm chooses mma.sync or wgmma, and loads its operands",
    "tilelang.jit.adapter": "a kernel has its sources, parameters and exports itself (tilelang.JITKernel)",
    "tilelang.language.copy": _OF_THE_LANGUAGE.format("copy"),
    "tilelang.language.fill": _OF_THE_LANGUAGE.format("fill, clear"),
    "tilelang.language.gemm": _OF_THE_LANGUAGE.format("gemm"),
    "tilelang.language.parallel": _OF_THE_LANGUAGE.format("Parallel"),
    "tilelang.language.pipeline": _OF_THE_LANGUAGE.format("Pipelined"),
    "tilelang.language.print": _OF_THE_LANGUAGE.format("print"),
    "tilelang.language.reduce": _OF_THE_LANGUAGE.format("reduce_sum, reduce_max, ..."),
    "tilelang.libinfo": "tilelang.runtime loads its library itself",
    "tilelang.primitives": "T.gemm and T.copy are the primitives",
    "tilelang.tools.Analyzer": "from tilelang.tools import Analyzer",
    "tilelang.tools.plot_layout": "from tilelang.tools import plot_layout",
}


def refused_paths() -> dict[str, str]:
    """Paths that are refused, and what to write instead."""
    return dict(_INSTEAD)


def stands_for_another(path: str) -> bool:
    """Is an import path one that stands for another module?"""
    return path in _STANDS_FOR


class _Alias(Loader):
    def __init__(self, home: str) -> None:
        self.home = home

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns what stands here once this is through.
        sys.modules[module.__name__] = importlib.import_module(self.home)


class _Finder(MetaPathFinder):
    """In front of the finder of files: a module that a path stands for may be a package with files of its own."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("tilelang."):
            return None
        if fullname in _INSTEAD:
            raise ModuleNotFoundError(f"No module named {fullname!r}: {_INSTEAD[fullname]}", name=fullname)
        head, rest = fullname, ""
        while head not in _STANDS_FOR:
            head, dot, last = head.rpartition(".")
            if not dot:
                return None
            rest = f".{last}{rest}"
        return ModuleSpec(fullname, _Alias(_STANDS_FOR[head] + rest))


def install() -> None:
    """Makes the paths known to Python's import, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def lazy_names(module: str, homes: Mapping[str, str], instead: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """A module's `__getattr__`: names with the modules that define them, and names that are refused with what to write
    instead. The latter are ImportErrors, so that `from module import name` says it too."""
    refused = instead or {}

    def find(name: str) -> Any:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            setattr(sys.modules[module], name, value)
            return value
        if name in refused:
            raise ImportError(f"{module} has no {name}: {refused[name]}", name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find
