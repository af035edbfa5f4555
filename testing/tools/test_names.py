# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import tilelang.language as T
from tilelang.tir_builder.dtypes import DTYPE_NAMES
from tilelang.tools.names import names_page


def test_every_name_has_a_row_with_a_meaning() -> None:
    rows = dict(re.findall(r"^\| `T\.(\w+).*?` \| (.*) \|$", names_page(), re.MULTILINE))
    assert set(T.__all__) - set(DTYPE_NAMES) <= set(rows)
    assert set(T.unsupported_names()) <= set(rows)
    assert not [name for name, meaning in rows.items() if not meaning]
