# SPDX-License-Identifier: Apache-2.0
"""Rows of the device-op table, one file per group; `tilelang.ir.device_ops` is the way in."""
