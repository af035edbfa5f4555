# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T

n = T.dynamic(3)
