# SPDX-License-Identifier: Apache-2.0
"""Import paths of public TileLang: each is a module of ours, or an ImportError that says what to write."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tilelang.support.import_paths import _STANDS_FOR, refused_paths


@pytest.mark.parametrize("path, home", sorted(_STANDS_FOR.items()))
def test_a_path_is_the_module_that_it_stands_for(path, home):
    assert importlib.import_module(path) is importlib.import_module(home)


@pytest.mark.parametrize("path, instead", sorted(refused_paths().items()))
def test_a_refused_path_says_what_to_write(path, instead):
    with pytest.raises(ModuleNotFoundError) as error:
        importlib.import_module(path)
    assert instead in str(error.value)


IMPORTS = """
from tilelang.autotuner.capture import set_autotune_inputs
from tilelang.cache import cached, clear_cache
from tilelang.carver.arch import CUDA, auto_infer_current_arch, is_hopper_arch
from tilelang.carver.arch.driver import get_num_sms, get_shared_memory_per_block
from tilelang.carver.roller.rasterization import Rasterization2DColumn
from tilelang.contrib import nvcc, nvrtc
from tilelang.contrib.nvcc import compile_cuda, get_cuda_version, have_pdl
from tilelang.engine import lower
from tilelang.engine.callback import register_cuda_postproc_callback
from tilelang.engine.param import CompiledArtifact, KernelParam
from tilelang.env import env, is_cache_enabled
from tilelang.intrinsics import get_swizzle_layout, make_mma_swizzle_layout
from tilelang.intrinsics.mma_layout import get_swizzle_layout
from tilelang.ir import GemmWarpPolicy
from tilelang.jit.kernel import JITKernel
from tilelang.language.copy_op import copy
from tilelang.language.v2.dtypes import float16
from tilelang.layout.layout import Layout
from tilelang.profiler.bench import do_bench
from tilelang.tileop.base import GemmWarpPolicy
from tilelang.transform import PassConfigKey, simplify_prim_func
from tilelang.tvm.ir import IRModule
from tilelang.utils import determine_target, map_torch_type
from tilelang.utils.language import is_fragment, is_shared
from tilelang.utils.sparse import randint_semi_sparse
from tilelang.utils.target import target_has_bulk_copy, target_is_ampere
from tilelang.utils.tensor import get_tensor_supply
from tilelang.version import __version__
import tilelang, tilelang.env, tilelang.tvm, tvm
assert tilelang.tvm is tvm and IRModule is tvm.ir.IRModule and tilelang.env.env is env
assert callable(tilelang.language.copy) and tilelang.__version__ == __version__
assert isinstance(tilelang.dtypes.float16, type(float16)) and tilelang.lower is lower
"""


@pytest.mark.parametrize("first", ["", "import tilelang\n"])
def test_names_that_programs_import(first):
    subprocess.run([sys.executable, "-c", first + IMPORTS], check=True)


def test_names_that_are_refused_are_import_errors():
    with pytest.raises(ImportError, match="T.gemm chooses mma.sync or wgmma"):
        from tilelang.intrinsics import TensorCoreIntrinEmitter  # noqa: F401
    with pytest.raises(ImportError, match="pass_configs of tilelang.jit"):
        from tilelang.transform import get_pass_context  # noqa: F401


def test_an_unknown_path_is_what_it_always_was():
    with pytest.raises(ModuleNotFoundError, match="No module named 'tilelang.nothing'"):
        importlib.import_module("tilelang.nothing")
    assert importlib.util.find_spec("tilelang.nothing") is None


def test_importing_the_package_loads_nothing_more():
    code = "import sys, tilelang; assert 'tvm' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
