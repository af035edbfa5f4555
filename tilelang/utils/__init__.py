# SPDX-License-Identifier: Apache-2.0
"""Public import paths that existing programs use; the code stands elsewhere."""
