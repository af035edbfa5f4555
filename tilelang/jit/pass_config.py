# SPDX-License-Identifier: Apache-2.0
"""The public `pass_configs` dictionary, key by key.

One table says what becomes of each key: an option field (with the value turned over where the key says
"disable"), or "accepted, no effect" with the reason: there is nothing that it could change. An unknown key is an error
that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from numbers import Integral, Real
from typing import Any

from tilelang.support.options import CompileOptions

__all__ = ["PassConfigKey", "effect_of", "freeze_pass_configs", "options_from"]


class PassConfigKey(str, Enum):
    """Keys of `pass_configs`; the string values work as well."""

    TL_SIMPLIFY = "tl.Simplify"
    TL_DYNAMIC_ALIGNMENT = "tl.dynamic_alignment"
    TL_DISABLE_DYNAMIC_TAIL_SPLIT = "tl.disable_dynamic_tail_split"
    TL_DISABLE_WARP_SPECIALIZED = "tl.disable_warp_specialized"
    TL_ENABLE_AUTO_WARP_SPECIALIZATION = "tl.enable_auto_warp_specialization"
    TL_DISABLE_TMA_LOWER = "tl.disable_tma_lower"
    TL_DISABLE_WGMMA = "tl.disable_wgmma"
    TL_RASTER_PANEL = "tl.raster_panel"
    TL_ASK_AHEAD = "tl.ask_ahead"
    TL_CARRY_GEMMS = "tl.carry_gemms"
    TL_OVERLAP_LAUNCHES = "tl.overlap_launches"
    TL_EARLY_BYTES = "tl.early_bytes"
    TL_COMPUTE_AHEAD = "tl.compute_ahead"
    TL_WARPGROUP_STORES = "tl.warpgroup_stores"
    TL_PERSISTENT = "tl.persistent"
    TL_CLUSTER = "tl.cluster"
    TL_LONG_BLOCKS_FIRST = "tl.long_blocks_first"
    TL_WARPGROUP_TURNS = "tl.warpgroup_turns"
    TL_EARLY_WAITS = "tl.early_waits"
    TL_LAZY_RESCALE = "tl.lazy_rescale"
    TL_L2_HINTS = "tl.l2_hints"
    TL_PINNED_WAITS = "tl.pinned_waits"
    TL_DEFERRED_SUMS = "tl.deferred_sums"
    TL_RELAXED_DIVISION = "tl.relaxed_division"
    TL_ENABLE_FAST_MATH = "tl.enable_fast_math"
    TL_DISABLE_FAST_MATH = "tl.disable_fast_math"
    TL_PTXAS_REGISTER_USAGE_LEVEL = "tl.ptxas_register_usage_level"
    TL_ENABLE_PTXAS_VERBOSE_OUTPUT = "tl.enable_ptxas_verbose_output"
    TL_DISABLE_VECTORIZE_256 = "tl.disable_vectorize_256"
    TL_DISABLE_SAFE_MEMORY_ACCESS = "tl.disable_safe_memory_legalize"
    TL_DISABLE_THREAD_STORAGE_SYNC = "tl.disable_thread_storage_sync"
    TL_DISABLE_SHARED_MEMORY_REUSE = "tl.disable_shared_memory_reuse"
    TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE = "tl.enable_aggressive_shared_memory_merge"
    TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS = "tl.debug_merge_shared_memory_allocations"
    TL_ENABLE_LOWER_LDGSTG = "tl.enable_lower_ldgstg"
    TL_ENABLE_LOWER_LDGSTG_PREDICATED = "tl.enable_lower_ldgstg_predicated"
    TL_ENABLE_ASYNC_COPY = "tl.enable_async_copy"
    TL_DISABLE_DATA_RACE_CHECK = "tl.disable_data_race_check"
    TL_DISABLE_OUT_OF_BOUND_WARNING = "tl.disable_out_of_bound_warning"
    TL_DISABLE_PRELOWER_SEMANTIC_CHECK = "tl.disable_prelower_semantic_check"
    TL_DISABLE_LOOP_UNSWITCHING = "tl.disable_loop_unswitching"
    TL_LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE = "tl.loop_unswitching_allow_non_trivial_else"
    TL_DISABLE_SHUFFLE_ELECT = "tl.disable_shuffle_elect"
    TL_CONFIG_INDEX_BITWIDTH = "tl.config_index_bitwidth"
    TL_DEVICE_COMPILE_FLAGS = "tl.device_compile_flags"
    TL_EMIT_LINE_DIRECTIVES = "tl.emit_line_directives"
    TL_ENABLE_DUMP_IR = "tl.enable_dump_ir"
    TL_DUMP_IR_DIR = "tl.dump_ir_path"
    TL_PASS_PROFILE = "tl.pass_profile"
    TL_PASS_PROFILE_THRESHOLD_MS = "tl.pass_profile_threshold_ms"
    TL_FORCE_LET_INLINE = "tl.force_let_inline"
    TL_LAYOUT_VISUALIZATION_ENABLE = "tl.layout_visualization_enable"
    TL_LAYOUT_VISUALIZATION_FORMATS = "tl.layout_visualization_formats"
    TL_LAYOUT_COST_MODEL = "tl.layout_cost_model"
    TL_REDUCER_FORCE_BASELINE = "tl.reducer_force_baseline"
    TL_ENABLE_FP32X2_REDUCTION = "tl.enable_fp32x2_reduction"
    TL_STORAGE_REWRITE_DETECT_INPLACE = "tl.storage_rewrite_detect_inplace"
    TL_AST_PRINT_ENABLE = "tl.ast_print_enable"
    TIR_ENABLE_EQUIV_TERMS_IN_CSE = "tir.enable_equiv_terms_in_cse_tir"
    TIR_DISABLE_CSE = "tir.disable_cse_tir"
    TIR_SIMPLIFY = "tir.Simplify"
    TIR_DISABLE_STORAGE_REWRITE = "tir.disable_storage_rewrite"
    TIR_DISABLE_VECTORIZE = "tir.disable_vectorize"
    TIR_USE_ASYNC_COPY = "tir.use_async_copy"
    TIR_ENABLE_DEBUG = "tir.enable_debug"
    TIR_MERGE_STATIC_SMEM = "tir.merge_static_smem"
    TIR_ADD_LOWER_PASS = "tir.add_lower_pass"
    TIR_NOALIAS = "tir.noalias"
    CUDA_KERNELS_OUTPUT_DIR = "cuda.kernels_output_dir"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class _Values:
    """The values that a key takes: `what` in words."""

    what: str
    has: Callable[[Any], bool]


def _whole(low: int, high: int | None = None) -> _Values:
    """Whole numbers, `high` included."""
    what = f"a whole number from {low}" + ("" if high is None else f" to {high}")
    return _Values(what, lambda v: _is_number(v, Integral) and low <= v and (high is None or v <= high))


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_SWITCH = _Values("True or False", lambda v: isinstance(v, bool) or (_is_number(v, Integral) and v in (0, 1)))
_AMOUNT = _Values("a number from 0", lambda v: _is_number(v, Real) and v >= 0)
_TEXT = _Values("a string or a path", lambda v: isinstance(v, str | os.PathLike))
_FLAGS = _Values("a string or a list of strings", lambda v: isinstance(v, str | list | tuple))


@dataclass(frozen=True)
class _Effect:
    """What a key does: sets `field` to `convert(value)`, or nothing, for `reason`; where `refused`, to set it is an
    error. `takes` says which values it takes."""

    field: str = ""
    convert: Callable[[Any], Any] = bool
    takes: _Values = _SWITCH
    reason: str = ""
    refused: bool = False


def _not(value: Any) -> bool:
    return not value


def _split_flags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(str(v) for v in value)


def _none(reason: str) -> _Effect:
    return _Effect(reason=reason)


_K = PassConfigKey
_EFFECTS: dict[PassConfigKey, _Effect] = {
    _K.TL_SIMPLIFY: _none("integers are always simplified"),
    _K.TL_DYNAMIC_ALIGNMENT: _none("vector widths are proved from the program, never assumed"),
    _K.TL_DISABLE_DYNAMIC_TAIL_SPLIT: _none("tails are peeled only where that is proved to pay"),
    _K.TL_DISABLE_WARP_SPECIALIZED: _Effect("warp_specialize", lambda v: False if v else None),
    _K.TL_ENABLE_AUTO_WARP_SPECIALIZATION: _Effect("warp_specialize", lambda v: True if v else None),
    _K.TL_DISABLE_TMA_LOWER: _Effect("tma", _not),
    _K.TL_DISABLE_WGMMA: _Effect("wgmma", _not),
    _K.TL_RASTER_PANEL: _Effect("raster_panel", int, _whole(0)),
    _K.TL_ASK_AHEAD: _Effect("ask_ahead"),
    _K.TL_CARRY_GEMMS: _Effect("carry_gemms"),
    _K.TL_OVERLAP_LAUNCHES: _Effect("overlap_launches"),
    _K.TL_EARLY_BYTES: _Effect("early_bytes", int, _whole(0)),
    _K.TL_COMPUTE_AHEAD: _Effect("compute_ahead"),
    _K.TL_WARPGROUP_STORES: _Effect("warpgroup_stores"),
    _K.TL_PERSISTENT: _Effect("persistent"),
    _K.TL_CLUSTER: _Effect("cluster", int, _whole(1, 2)),
    _K.TL_LONG_BLOCKS_FIRST: _Effect("long_blocks_first"),
    _K.TL_WARPGROUP_TURNS: _Effect("warpgroup_turns"),
    _K.TL_EARLY_WAITS: _Effect("early_waits"),
    _K.TL_LAZY_RESCALE: _Effect("lazy_rescale", float, _AMOUNT),
    _K.TL_L2_HINTS: _Effect("l2_hints"),
    _K.TL_PINNED_WAITS: _Effect("pinned_waits"),
    _K.TL_DEFERRED_SUMS: _Effect("deferred_sums"),
    _K.TL_RELAXED_DIVISION: _Effect("relaxed_division"),
    _K.TL_ENABLE_FAST_MATH: _Effect("fast_math"),
    _K.TL_DISABLE_FAST_MATH: _Effect("fast_math", _not),
    _K.TL_PTXAS_REGISTER_USAGE_LEVEL: _Effect("register_level", int, _whole(0, 10)),
    _K.TL_ENABLE_PTXAS_VERBOSE_OUTPUT: _Effect("ptxas_verbose"),
    _K.TL_DISABLE_VECTORIZE_256: _none("no target has vectors of 256 bits"),
    _K.TL_DISABLE_SAFE_MEMORY_ACCESS: _Effect("safe_memory_access", _not),
    _K.TL_DISABLE_THREAD_STORAGE_SYNC: _Effect("sync_threads", _not),
    _K.TL_DISABLE_SHARED_MEMORY_REUSE: _Effect("reuse_shared", _not),
    _K.TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE: _none("tiles whose lives are apart share their bytes"),
    _K.TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS: _none("`tilelang inspect` shows where every tile lies"),
    _K.TL_ENABLE_LOWER_LDGSTG: _none("global accesses are always given their instruction by the compiler"),
    _K.TL_ENABLE_LOWER_LDGSTG_PREDICATED: _none("accesses under a guard are predicated by ptxas"),
    _K.TL_ENABLE_ASYNC_COPY: _Effect("cp_async"),
    _K.TL_DISABLE_DATA_RACE_CHECK: _none("races are what `tilelang check` looks for, not the compiler"),
    _K.TL_DISABLE_OUT_OF_BOUND_WARNING: _none("there are no such warnings: an access is guarded, or an error"),
    _K.TL_DISABLE_PRELOWER_SEMANTIC_CHECK: _none("what is refused has no meaning to compile"),
    _K.TL_DISABLE_LOOP_UNSWITCHING: _none("no loop is copied for a condition in it"),
    _K.TL_LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE: _none(
        "loops are peeled by bounds analysis, whatever the other arm is"
    ),
    _K.TL_DISABLE_SHUFFLE_ELECT: _none("the electing thread is the compiler's choice"),
    _K.TL_CONFIG_INDEX_BITWIDTH: _none("offsets into tensors have 64 bits wherever 32 might not do"),
    _K.TL_DEVICE_COMPILE_FLAGS: _Effect("device_flags", _split_flags, _FLAGS),
    _K.TL_EMIT_LINE_DIRECTIVES: _Effect("line_directives"),
    _K.TL_ENABLE_DUMP_IR: _Effect("dump_ir"),
    _K.TL_DUMP_IR_DIR: _Effect("dump_ir_dir", str, _TEXT),
    _K.TL_PASS_PROFILE: _Effect("pass_times"),
    _K.TL_PASS_PROFILE_THRESHOLD_MS: _Effect("pass_times_from_ms", float, _AMOUNT),
    _K.TL_FORCE_LET_INLINE: _none("bindings are substituted where that is sound"),
    _K.TL_LAYOUT_VISUALIZATION_ENABLE: _Effect("layout_plot"),
    _K.TL_LAYOUT_VISUALIZATION_FORMATS: _Effect("layout_plot_formats", str, _TEXT),
    _K.TL_LAYOUT_COST_MODEL: _none("layouts are always chosen by cost"),
    _K.TL_REDUCER_FORCE_BASELINE: _none("there is one reducer lowering"),
    _K.TL_ENABLE_FP32X2_REDUCTION: _none("pairs of float32 are added at once from sm_100 on"),
    _K.TL_STORAGE_REWRITE_DETECT_INPLACE: _none("register arrays are left to ptxas"),
    _K.TL_AST_PRINT_ENABLE: _Effect("print_program"),
    _K.TIR_ENABLE_EQUIV_TERMS_IN_CSE: _none("common subexpressions are left to the CUDA compiler"),
    _K.TIR_DISABLE_CSE: _none("common subexpressions are left to the CUDA compiler"),
    _K.TIR_SIMPLIFY: _none("integers are always simplified"),
    _K.TIR_DISABLE_STORAGE_REWRITE: _none("register arrays are left to ptxas"),
    _K.TIR_DISABLE_VECTORIZE: _Effect("vectorize", _not),
    _K.TIR_USE_ASYNC_COPY: _Effect("cp_async"),
    _K.TIR_ENABLE_DEBUG: _none("use TILELANG_VERIFY=1"),
    _K.TIR_MERGE_STATIC_SMEM: _none("all shared memory is one arena"),
    _K.TIR_ADD_LOWER_PASS: _Effect(reason="the list of passes is fixed", refused=True),
    _K.TIR_NOALIAS: _none("tensors are assumed distinct unless annotated"),
    _K.CUDA_KERNELS_OUTPUT_DIR: _Effect("kernels_dir", str, _TEXT),
}
assert set(_EFFECTS) == set(PassConfigKey)


def effect_of(key: PassConfigKey) -> str:
    """What a key does, in a line, for the docs and `tilelang explain`."""
    effect = _EFFECTS[key]
    if effect.refused:
        return f"refused: {effect.reason}"
    return f"sets option {effect.field}" if effect.field else f"accepted, no effect: {effect.reason}"


def _known_key(key: Any) -> PassConfigKey:
    text = key.value if isinstance(key, Enum) else key
    if not isinstance(text, str):
        raise TypeError(f"a pass_configs key is a tilelang.PassConfigKey or its string, got {type(key).__name__}")
    for known in PassConfigKey:
        if text in (known.value, known.name):
            return known
    near = difflib.get_close_matches(
        text, [k.value for k in PassConfigKey] + [k.name for k in PassConfigKey], n=1, cutoff=0.4
    )
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown pass_configs key {text!r}{hint}")


def freeze_pass_configs(pass_configs: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Keys as strings. Raises `ValueError` for an unknown key, naming the nearest one."""
    if not isinstance(pass_configs, Mapping | None):
        raise TypeError(f"pass_configs is a dictionary, got {type(pass_configs).__name__}")
    return {_known_key(key).value: value for key, value in (pass_configs or {}).items()}


def options_from(pass_configs: Mapping[Any, Any] | None, compile_flags: Any = None) -> CompileOptions:
    """Options of a `pass_configs` dictionary and extra device compiler flags. Raises `ValueError` for a value that its
    key does not take."""
    fields: dict[str, Any] = {}
    for key, value in (pass_configs or {}).items():
        effect = _EFFECTS[_known_key(key)]
        if effect.refused and value:
            raise ValueError(f"pass_configs key {_known_key(key).value!r} cannot be set: {effect.reason}")
        if effect.field and not effect.takes.has(value):
            raise ValueError(f"pass_configs key {_known_key(key).value!r} is {effect.takes.what}, not {value!r}")
        if effect.field:
            fields[effect.field] = effect.convert(value)
    flags = (*fields.pop("device_flags", ()), *_split_flags(compile_flags or ()))
    return dataclasses.replace(CompileOptions(), **fields, device_flags=flags)
