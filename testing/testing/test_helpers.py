# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch

from tilelang import testing


def test_nan_is_equal_only_where_asked():
    nan = torch.tensor([float("nan")])
    assert testing.torch_assert_close(nan, nan)
    with pytest.raises(AssertionError, match="1 of 1"):
        testing.torch_assert_close(nan, nan, equal_nan=False)


def test_strides_and_layouts():
    a = torch.ones(4, 4)
    b = torch.ones(4, 8)[:, ::2]
    assert testing.torch_assert_close(a, b, check_layout=False)
    with pytest.raises(AssertionError, match=r"strides \(4, 1\), RHS \(8, 2\)"):
        testing.torch_assert_close(a, b, check_stride=True)
    with pytest.raises(AssertionError, match="layout"):
        testing.torch_assert_close(a, a.to_sparse())


def test_a_bare_decorator_does_not_skip_its_test_for_ever():
    def case():
        pass

    with pytest.raises(TypeError, match=r"requires_cuda_compute_version\(9, 0\)"):
        testing.requires_cuda_compute_version_ge(case)
    with pytest.raises(TypeError, match="names of packages"):
        testing.requires_package(case)
