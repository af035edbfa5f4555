#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The table of the attention example: torch op by op, the plain tile program, and each lever added to it in turn.
#   ./benchmark.sh [--batch B] [--heads H] [--seq S] [--dim D] [--full]      (causal unless --full)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec "${PYTHON:-python3}" levers.py "$@"
