# SPDX-License-Identifier: Apache-2.0
"""The disk cache of finished searches: which configuration won, for which program, on which card.

One JSON file a search, named by the hash of everything the answer depends on: the function's source and the values it
closes over, the arguments, the space, the device and the versions. Only measured results are kept. A search with values
that have no stable text (callbacks, objects) has no key and is not stored.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilelang.support.logs import logger

__all__ = ["load", "search_key", "store"]


def search_key(
    func: Callable[..., Any],
    arguments: Mapping[str, Any],
    configs: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Any],
) -> str | None:
    """The name of a search, or None where it depends on something without a stable text."""
    try:
        source = inspect.getsource(func)
        closed = inspect.getclosurevars(func).nonlocals
        text = json.dumps(
            [source, _stable(closed), _stable(arguments), _stable(list(configs)), _stable(facts)], sort_keys=True
        )
    except (OSError, TypeError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def _stable(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(k): _stable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_stable(v) for v in value]
    if type(value).__module__.split(".")[0] in ("torch", "numpy") and type(value).__name__.startswith("dtype"):
        return str(value)
    raise TypeError(f"no stable text for {type(value).__name__}")


def load(folder: Path, key: str) -> dict[str, Any] | None:
    """The stored record, or None; a damaged file counts as absent."""
    try:
        return json.loads((folder / f"{key}.json").read_text())
    except (OSError, json.JSONDecodeError):
        return None


def store(folder: Path, key: str, record: Mapping[str, Any]) -> None:
    """Write the record whole or not at all, so that readers in other processes never see half a file. A folder that
    cannot be written is no error: the search was made, and is made again next time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            json.dump(record, file, indent=1)
        os.replace(path, folder / f"{key}.json")
    except OSError as error:
        logger.info("the result of an autotuner cannot be kept in %s: %s", folder, error)
