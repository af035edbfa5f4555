# SPDX-License-Identifier: Apache-2.0
"""A level-4 PrimFunc -> CUDA text and launch data, through TVM's own CUDA printer.

The passes are those a device function needs, no more: argument checks and launching are ours, so MakePackedAPI and the
host code generator never run, and TVM's compile callback is never reached (a machine with and one without a GPU take
the same path).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tilelang.codegen.asserts import lower_asserts, spell_strings
from tilelang.codegen.conversions import split_conversions
from tilelang.codegen.device_text import register_device_text
from tilelang.codegen.functions import spell_functions
from tilelang.codegen.launch import KernelLaunch, PointerParam, ScalarParam, TensorMapParam, read_launches
from tilelang.codegen.legalize import (
    check_lowered,
    check_resources,
    convert_float8,
    launch_facts,
    lower_shared_addresses,
    spell_constants,
    strip_annotations,
    widen_global_indices,
)
from tilelang.codegen.narrow_integers import wrap_narrow_integers
from tilelang.codegen.prelude import prelude_for
from tilelang.codegen.remainders import protect_remainders
from tilelang.codegen.simplify import simplify_integers
from tilelang.codegen.source_lines import Places, line_directives, mark_statements
from tilelang.ir.attrs import PRELUDE
from tilelang.support.errors import InternalError
from tilelang.support.faults import compiler_step
from tilelang.target.arch import Arch

__all__ = ["CudaSource", "KernelLaunch", "PointerParam", "ScalarParam", "TensorMapParam", "lower_to_cuda", "tl_passes"]

_STAGE = "lower_to_cuda"
_HEADER_END = "#define ushort unsigned short\n#endif\n"  # the last line of TVM's header


@dataclass(frozen=True)
class CudaSource:
    """`text` is complete (header and kernels); `kernels` are in launch order.

    `with_lines()` prints the kernels once more, with `#line` directives for the user's statements: the text, and the
    places that the directives name."""

    text: str
    kernels: tuple[KernelLaunch, ...]
    arch: Arch
    with_lines: Callable[[], tuple[str, Places]] = field(repr=False, compare=False)


@tirx.transform.prim_func_pass(opt_level=0, name="tl.WidenGlobalIndices")
def _widen(func: Any, _mod: Any, _ctx: Any) -> Any:
    return widen_global_indices(func)


@tirx.transform.prim_func_pass(opt_level=0, name="tl.ProtectRemainders")
def _protect(func: Any, _mod: Any, _ctx: Any) -> Any:
    return protect_remainders(func)


@tirx.transform.prim_func_pass(opt_level=0, name="tl.WrapNarrowIntegers")
def _wrap_narrow(func: Any, _mod: Any, _ctx: Any) -> Any:
    return wrap_narrow_integers(func)


@tirx.transform.prim_func_pass(opt_level=0, name="tl.SplitConversions")
def _split_conversions(func: Any, _mod: Any, _ctx: Any) -> Any:
    return split_conversions(func)


@tvm.transform.module_pass(opt_level=0, name="tl.SimplifyIntegers")
def _simplify(mod: Any, _ctx: Any) -> Any:
    return simplify_integers(mod)


def tl_passes() -> list[Any]:
    """TVM's passes in order, from level 4 to split host and device functions."""
    t = tirx.transform
    return [
        _widen,
        _wrap_narrow,
        _protect,
        _split_conversions,
        t.FlattenBuffer(),
        t.BF16ComputeLegalize(),  # keeps bfloat16 arithmetic where the target has it
        t.NarrowDataType(32),  # index arithmetic that provably fits
        t.VectorizeLoop(True),
        t.UnrollLoop(),
        t.AnnotateEntryFunc(),
        t.SplitHostDevice(),
    ]


def lower_to_cuda(func: Any, arch: Arch) -> CudaSource:
    """The CUDA text of a level-4 function and how to launch it. Raises InternalError for what level 4 may not
    contain, and where a pass of TVM fails.
    """
    with compiler_step(_STAGE, {"device program": func}):
        return _lower_to_cuda(func, arch)


def _run(passes: list[Any], mod: Any) -> Any:
    """TVM's passes, each with a name of its own should it fail."""
    for step in passes:
        with compiler_step(str(step.info.name), {f"in front of {step.info.name}": mod}):
            mod = step(mod)
    return mod


def _lower_to_cuda(func: Any, arch: Arch) -> CudaSource:
    check_lowered(func)
    check_resources(func, arch)
    facts = launch_facts(func)
    user_text = str((func.attrs or {}).get(PRELUDE, ""))
    func = spell_functions(spell_strings(lower_asserts(strip_annotations(func))))
    register_device_text()
    target = tvm.target.Target(
        {"kind": "cuda", "arch": arch.name, "max_shared_memory_per_block": arch.smem_bytes_per_block}, host="llvm"
    )
    if "global_symbol" not in (func.attrs or {}):
        func = func.with_attr("global_symbol", "main")
    mod = tirx.transform.BindTarget(target)(tvm.IRModule.from_expr(func))
    mod = _run(tl_passes(), mod)
    device = {str(gv.name_hint): f for gv, f in mod.functions.items() if f.attrs.get("calling_conv", 0) == 2}
    hosts = [f for gv, f in mod.functions.items() if str(gv.name_hint) not in device]
    if not device or len(hosts) != 1:
        raise InternalError(f"{len(device)} kernels and {len(hosts)} host functions", stage=_STAGE)
    launches = read_launches(hosts[0], device)
    if len(launches) != len(facts):
        raise InternalError(f"{len(facts)} launches became {len(launches)}", stage=_STAGE)
    launches = tuple(
        replace(launch, cluster=f.cluster, cooperative=f.cooperative, programmatic=f.programmatic)
        for launch, f in zip(launches, facts, strict=True)
    )
    shared = [f.programmatic or f.cooperative for f in facts]
    device = {launch.name: _aliased(device[launch.name], may) for launch, may in zip(launches, shared, strict=True)}
    finished = _finish(device, launches)

    def complete(body: str) -> str:
        body = f"{user_text}\n{body}" if user_text else body
        return prelude_for(body) + body

    def with_lines() -> tuple[str, Places]:
        places = Places()
        marked = {name: mark_statements(f, places) for name, f in finished.items()}
        return complete(line_directives(_print(marked, target), places)), places

    return CudaSource(complete(_print(finished, target)), launches, arch, with_lines)


def _aliased(func: Any, others_write: bool) -> Any:
    """The function without `__restrict__` where other grids or blocks may write during its launch what it only reads:
    CUDA may move loads through a restricted pointer that nothing is stored through to the start of the kernel, in
    front of every wait."""
    return func.without_attr("tirx.noalias") if others_write and "tirx.noalias" in func.attrs else func


def _finish(device: dict[str, Any], launches: tuple[KernelLaunch, ...]) -> dict[str, Any]:
    """The device functions as they are printed, in launch order."""
    t = tirx.transform
    device_mod = tvm.IRModule({launch.name: lower_shared_addresses(device[launch.name]) for launch in launches})
    finish = [t.BF16StorageLegalize(), t.LowerWarpMemory(), _simplify, t.LowerIntrin()]
    device_mod = _run(finish, device_mod)
    return {str(gv.name_hint): convert_float8(spell_constants(f)) for gv, f in device_mod.functions.items()}


def _print(device: dict[str, Any], target: Any) -> str:
    """TVM's text of the device functions, without its header."""
    text = _capture(tvm.IRModule(device), target)
    _, found, body = text.partition(_HEADER_END)
    if not found:
        raise InternalError("TVM's CUDA header has changed", stage=_STAGE)
    return _FLOAT8_CAST.sub(r"tl_to_\1(", body.lstrip())


# TVM prints conversions of vectors as C casts; `convert_float8` has those of single numbers.
_FLOAT8_CAST = re.compile(r"\(__nv_(fp8x[24]_e[45]m[23])\)\(")


class _Capture(threading.local):
    active = False
    text = ""


_capture_state = _Capture()


def _capture(mod: Any, target: Any) -> str:
    """The CUDA text of `mod`, taken at TVM's post-processing callback: what follows there is its own compilation."""
    _install_callback()
    _capture_state.active, _capture_state.text = True, ""
    try:
        tvm.get_global_func("target.build.cuda")(mod, target)
    except RuntimeError:
        if not _capture_state.text:
            raise
    finally:
        _capture_state.active = False
    return _capture_state.text


_CALLBACK = "tvm_callback_cuda_postproc"
_installed = threading.Lock()
_done = False


def _install_callback() -> None:
    """Registers the post-processing callback; other users' text, and theirs before us, pass through it unchanged."""
    global _done
    with _installed:
        if _done:
            return
        earlier = tvm_ffi.get_global_func(_CALLBACK, allow_missing=True)

        def postprocess(code: str, target: Any) -> str:
            if _capture_state.active:
                _capture_state.text = str(code)
                raise RuntimeError("text taken")
            return earlier(code, target) if earlier is not None else code

        tvm_ffi.register_global_func(_CALLBACK, postprocess, override=True)
        _done = True
