# SPDX-License-Identifier: Apache-2.0
"""The benchmarks: how a call is timed, what a result file holds, and the families of kernels with their peers."""
