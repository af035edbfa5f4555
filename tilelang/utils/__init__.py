# SPDX-License-Identifier: Apache-2.0
"""Public import paths that existing programs use; the code stands elsewhere."""

from __future__ import annotations

from tilelang.support.import_paths import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(
            ("TensorSupplyType", "get_tensor_supply", "map_torch_type", "torch_assert_close"), "tilelang.utils.tensor"
        ),
        **dict.fromkeys(("check_cuda_availability", "determine_target"), "tilelang.utils.target"),
    },
)
