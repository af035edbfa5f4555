# SPDX-License-Identifier: Apache-2.0
"""The kernel cache on disk: one folder a kernel, published in one step.

A key covers everything that decides a kernel: the IR text, outputs, target, options, this package's version and a
hash of its own sources, so that an edited compiler never reads what an older one wrote. Writers fill a folder of
their own and rename it into place; the loser of a race throws its copy away. A folder that cannot be read is treated
as absent.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import tilelang
from tilelang.support.env import env

__all__ = [
    "cache_key",
    "disable_cache",
    "enable_cache",
    "is_cache_enabled",
    "lookup",
    "publish",
    "remove_kernels",
    "update",
]

_switch: bool | None = None  # set by the program; None leaves it to the environment


def enable_cache() -> None:
    """Reads and writes the kernel cache on disk, whatever the environment says."""
    global _switch
    _switch = True


def disable_cache() -> None:
    """Neither reads nor writes the kernel cache on disk."""
    global _switch
    _switch = False


def is_cache_enabled() -> bool:
    return _switch if _switch is not None else not env.cache_disabled.get()


@functools.cache
def _compiler_hash() -> str:
    """A hash of every source of this package that can change a kernel."""
    root = Path(tilelang.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".h", ".cuh", ".so") and path.is_file():
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_key(*parts: object) -> str:
    """The name of a kernel's folder."""
    digest = hashlib.sha256()
    for part in (tilelang.__version__, _compiler_hash(), *parts):
        text = repr(part).encode()
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.hexdigest()


def _folder(key: str) -> Path:
    return env.cache_dir.get() / tilelang.__version__ / "kernels" / key


def lookup(key: str) -> Path | None:
    """The folder of a published kernel, or None."""
    if not is_cache_enabled():
        return None
    folder = _folder(key)
    return folder if folder.is_dir() else None


def publish(key: str, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a new folder and publishes it. An unwritable cache is no error: the kernel works without."""
    if not is_cache_enabled():
        return
    final = _folder(key)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=final.parent))
    except OSError:
        return
    try:
        write(staging)
        os.replace(staging, final)
    except OSError:
        shutil.rmtree(staging, ignore_errors=True)


def remove_kernels() -> None:
    """Removes all published kernels of this version; what other processes are reading stays readable to them."""
    shutil.rmtree(env.cache_dir.get() / tilelang.__version__ / "kernels", ignore_errors=True)


def update(key: str, name: str, text: str) -> None:
    """Replaces one file of a published kernel, in one step; nothing where the kernel is not in the cache."""
    folder = lookup(key)
    if folder is None:
        return
    staging = folder / f".{name}-{os.getpid()}"
    try:
        staging.write_text(text)
        os.replace(staging, folder / name)
    except OSError:
        staging.unlink(missing_ok=True)
