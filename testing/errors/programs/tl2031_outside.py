# SPDX-License-Identifier: Apache-2.0
import tilelang.language as T

half = T.cast(1.0, "floot16")
