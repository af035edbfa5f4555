# SPDX-License-Identifier: Apache-2.0
"""Every public name of the language, with the keywords that programs pass, exists or is refused on purpose.

A refused name has its reason here; using it is an error that says what to write instead.
"""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.language.elsewhere import ELSEWHERE
from tilelang.language.errors import UnknownName, UnsupportedName

# A name a line, and the keywords that it takes.
LANGUAGE = """
__cos
__exp
__exp10
__exp2
__log
__log10
__log2
__sin
__tan
abs
abs2
access_ptr
acos
acosh
activemask
add2
all_of
all_sync
alloc_barrier arrive_count
alloc_cluster_barrier arrive_count
alloc_descriptor kind
alloc_fragment shape dtype scope
alloc_global shape dtype
alloc_local shape dtype
alloc_reducer shape dtype op replication
alloc_shared shape dtype scope
alloc_var dtype init scope
And
annotate_compile_flags flags
annotate_consumer_reg_alloc
annotate_l2_hit_ratio
annotate_layout
annotate_min_blocks_per_sm
annotate_pass_configs
annotate_producer_reg_dealloc
annotate_restrict_buffers
annotate_safe_value
annotate_ws_pipeline_depth
any_of
any_sync
asin
asinh
assume
async_copy src dst coalesced_width annotations loop_layout
atan
atan2
atanh
atomic_add dst value memory_order return_prev use_tma
atomic_addx2
atomic_addx4
atomic_and
atomic_load src memory_order
atomic_max dst value memory_order return_prev
atomic_min
atomic_or
atomic_store
atomic_xor
attr node attr_key value
ballot
ballot_sync
barrier_arrive
barrier_wait
bitwise_and
bitwise_not
bitwise_or
bitwise_xor
block_rank_in_cluster
Buffer
c2d_im2col img col nhw_step c_step kernel stride dilation pad
call_extern
call_pure_extern
cast x dtype round sat rbits
ceil
ceildiv
clamp
clear
clz
cluster_arrive
cluster_sync
cluster_wait
ClusterKernel cluster_dims threads
const
copy src dst coalesced_width disable_tma eviction_policy prefer_instruction annotations loop_layout
copy_cluster src dst dst_block cluster_mask remote_barrier
comm_reducer combiner identity
copysign
cos
cosh
cp_async_barrier_noinc
CUDASourceCodeKernel threads source_code_or_path entry_name
cummax src dst dim reverse
cumsum src dst dim reverse
dec_max_nreg
device_assert msg
disable_warp_group_reg_alloc
dp4a A B C
DType
dyn
dynamic name dtype
empty dtype
erf
evaluate value
exp
exp10
exp2
fast_rcp
fence_proxy_async
fill
finalize_reducer
floor
floordiv
floormod
fma
fma2
fmod
fmul
Fragment
FragmentBuffer
gemm A B C transpose_A transpose_B policy clear_accum k_pack mbar annotations wg_wait
gemm_blockscaled
gemm_sp A_sparse E B C transpose_A transpose_E transpose_B policy clear_accum
GemmWarpPolicy
get_block_binding dim
get_block_bindings
get_block_extent dim
get_block_extents
get_cluster_dims
get_cluster_extent
get_cluster_extents
get_cluster_id
get_cluster_ids
get_cluster_size
get_lane_idx
get_thread_binding dim
get_thread_bindings
get_thread_extent dim
get_thread_extents
get_warp_group_idx
get_warp_idx
get_warp_idx_sync
grid
ieee_add
ieee_fdiv
ieee_fmaf
ieee_frcp
ieee_frsqrt
ieee_fsqrt
ieee_mul
ieee_sub
hypot
if_then_else
im2col img col nhw_step c_step kernel stride dilation pad
import_source
inc_max_nreg
infinity
inline
isfinite
isinf
isnan
Kernel threads prelude cluster_dims
Layout
LocalBuffer
ldexp x exponent
log
log10
log1p
log2
loop_break
macro
make_tensor ptr shape dtype strides
make_tensor_from_addr shape dtype strides
match_all_sync
match_any_sync
max
max2
max_value
mbarrier_arrive cta_id
mbarrier_arrive_expect_tx
mbarrier_expect_tx
mbarrier_wait_parity
meta_class
min
min2
min_value
mul2
named_barrier_arrive
nearbyint
no_set_max_nreg
Not
Or
Parallel coalesced_width loop_layout prefer_async annotations
PartialFragment
pdl_sync
pdl_trigger
Persistent domain wave_size index group_size num_stages
PersistentTileScheduler num_m num_n num_workers swizzle_size column_major cluster_size stateful name
Pipelined start stop num_stages order stage sync group annotations
popcount
pow
prim_func
PrimFunc
print obj msg warp_group_id warp_id
ptr
ptx_commit_group
ptx_cp_async
ptx_wait_group
range
reduce_absmax buffer out dim clear batch nan_propagate
reduce_abssum buffer out dim clear
reduce_bitand buffer out dim clear
reduce_bitor buffer out dim clear
reduce_bitxor buffer out dim clear
reduce_max buffer out dim clear batch nan_propagate
reduce_min buffer out dim clear batch nan_propagate
reduce_sum buffer out dim clear batch nan_propagate
reducer_init
reducer_update
Ref
reinterpret
reshape
rng_init seed seq off
rng_rand
rng_rand_float
round
rsqrt
Select
Serial
serial start stop step annotations
set_max_nreg
SharedBuffer
shfl_down
shfl_sync x lane width mask
shfl_up
shfl_xor x delta width mask
shift_left
shift_right
shuffle_elect
sigmoid
sin
sinh
sqrt
StridedTensor shape strides dtype data
sub2
symbolic name dtype
sync_global
sync_grid
sync_threads barrier_id arrive_count
sync_warp mask
syncthreads_and
syncthreads_count
syncthreads_or
tan
tanh
Tensor
thread_binding
thread_return
tma_copy src dst barrier cluster_mask leader_scope_threads eviction_policy annotations
tma_gather4
tma_scatter4
tma_store_arrive
tma_store_wait count read
transpose src dst
trunc
truncdiv
truncmod
tvm_thread_allreduce size dtype
Unroll
unroll explicit unroll_factor
use_swizzle panel_size order enable
Vectorized
vectorized
view shape dtype
wait_wgmma
warp_reduce_bitand
warp_reduce_bitor
warp_reduce_max
warp_reduce_min
warp_reduce_sum
WarpSpecialize
wgmma_gemm A B C transpose_A transpose_B policy clear_accum
ws
"""

NAMES = {line.split()[0]: line.split()[1:] for line in LANGUAGE.strip().splitlines()}

REFUSED = {
    "alloc_descriptor": "descriptors of wgmma operands are formed by the compiler",
    "gemm_blockscaled": "block-scaled products exist from sm_100 on",
    "PartialFragment": "every fragment has one layout; partial sums are reducers",
    "tma_gather4": "gathers of rows by the copy engine exist from sm_100 on",
    "tma_scatter4": "scatters of rows by the copy engine exist from sm_100 on",
}

ELEMENT_TYPES = """
bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 int4 uint4 float16 bfloat16 float32 float64 float8_e4m3fn
float8_e5m2 float8_e8m0fnu float4_e2m1fn float16x2 bfloat16x2 float32x2 float32x4 int32x4 int8x4 float8_e4m3fnx4
"""

MODULES = {
    "tilelang": """
        jit compile par_compile autotune lower cdiv next_power_of_2 set_log_level enable_cache disable_cache
        is_cache_enabled TensorSupplyType PassConfigKey JITKernel env tvm __version__ language layout testing profiler
        """,
    "tilelang.layout": """
        Layout Fragment make_swizzled_layout make_full_bank_swizzled_layout make_half_bank_swizzled_layout
        make_quarter_bank_swizzled_layout make_wgmma_swizzled_layout make_linear_layout
        make_fully_replicated_layout_fragment make_gemm_fragment_8x8 make_gemm_fragment_8x8_transposed
        """,
    "tilelang.testing": """
        main set_random_seed requires_cuda requires_cuda_compute_version requires_cuda_compute_version_ge
        requires_cuda_compute_version_gt requires_cuda_compute_version_le requires_cuda_compute_version_lt
        requires_cuda_compute_version_eq requires_package requires_llvm requires_rocm requires_metal requires_cdna
        torch_assert_close process_func regression
        """,
    "tilelang.contrib.nvcc": """
        get_target_compute_version parse_compute_version get_target_arch have_tma is_hopper
        """,
    "tilelang.utils.target": "determine_target",
    "tilelang.math": "cdiv next_power_of_2",
    "tilelang.quantize": "_tir_packed_to_unsigned_convert general_compress get_lop3_intrin_group interleave_weight",
    "tilelang.engine": "lower KernelParam CompiledArtifact register_cuda_postproc register_cuda_postproc_callback",
    "tilelang.cache": "cached clear_cache",
    "tilelang.env": "env enable_cache disable_cache is_cache_enabled",
    "tilelang.utils.tensor": "TensorSupplyType map_torch_type torch_assert_close",
    "tilelang.carver.arch": "CUDA CDNA RDNA CPU METAL driver",
    "tilelang.carver.arch.driver": "get_num_sms",
    "tilelang.carver.roller.rasterization": "NoRasterization Rasterization2DRow",
    "tilelang.carver.template": """
        MatmulTemplate GEMVTemplate ElementwiseTemplate GeneralReductionTemplate FlashAttentionTemplate ConvTemplate
        """,
    "tilelang.profiler": "do_bench Profiler",
    "tilelang.tools": "Analyzer plot_layout",
    "tilelang.autotuner": "autotune set_autotune_inputs AutoTuner",
}

KERNEL_MEMBERS = """
get_kernel_source get_host_source show_source export_sources get_profiler run_once export_library show_ptx export_ptx
show_sass export_sass latency config ref_latency get_tuner_result out_idx params prim_func adapter artifact
"""


@pytest.mark.parametrize("name", [n for n in NAMES if n not in REFUSED])
def test_name_and_keywords(name: str) -> None:
    value = getattr(T, name)
    assert name in T.__all__ or name.startswith("__")
    if not NAMES[name]:
        return
    parameters = inspect.signature(value).parameters
    assert set(NAMES[name]) <= set(parameters), f"T.{name} takes {list(parameters)}"


@pytest.mark.parametrize("name", REFUSED)
def test_refused_name_says_what_to_write(name: str) -> None:
    with pytest.raises(UnsupportedName, match=name) as info:
        getattr(T, name)
    assert "help:" in str(info.value)


def test_every_refused_name_is_documented() -> None:
    assert set(REFUSED) <= set(NAMES)
    assert not set(REFUSED) & set(T.__all__)


def test_unknown_name() -> None:
    with pytest.raises(UnknownName, match=r"did you mean T\.gemm"):
        T.gem  # noqa: B018 - the access is the test


@pytest.mark.parametrize("name", ELSEWHERE)
def test_name_of_another_language_says_what_to_write(name: str) -> None:
    with pytest.raises(UnknownName) as info:
        getattr(T, name)
    assert f"help: {ELSEWHERE[name]}" in str(info.value)
    assert set(re.findall(r"\bT\.(\w+)", ELSEWHERE[name])) <= set(T.__all__)


@pytest.mark.parametrize("name", ELEMENT_TYPES.split())
def test_element_type(name: str) -> None:
    assert isinstance(getattr(T, name), T.DType)


@pytest.mark.parametrize("module", MODULES)
def test_names_of_modules(module: str) -> None:
    found = importlib.import_module(module)
    missing = [name for name in MODULES[module].split() if not hasattr(found, name)]
    assert not missing


@pytest.mark.parametrize("member", KERNEL_MEMBERS.split())
def test_members_of_kernels(member: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            A[T.get_thread_binding()] = 1.0

    assert hasattr(tilelang.compile(main, target="cpu"), member)


def test_other_spellings():
    """Names of element types as C has them, older ones, and those of casts and addresses."""
    assert [T.half, T.float, T.double] == ["float16", "float32", "float64"]
    assert [T.short, T.int, T.long, T.uint] == ["int16", "int32", "int64", "uint32"]
    assert T.float8_e4m3 == "float8_e4m3fn" and T.dtype("e5m2_float8") == T.float8_e5m2
    assert T.dtype(torch.bfloat16) == "bfloat16" and T.dtype("bfloat16").as_torch() is torch.bfloat16
    assert isinstance(T.float16, T.dtype)
