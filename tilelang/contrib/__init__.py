# SPDX-License-Identifier: Apache-2.0
"""Helper namespaces that users import."""
