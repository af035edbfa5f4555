# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T


@T.macro
def double(x):
    return x * 2


double(3)
