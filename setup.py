# SPDX-License-Identifier: Apache-2.0
"""Builds the native launcher with CMake; everything else about the package stands in pyproject.toml.

The library speaks tvm-ffi's C ABI only, so one build serves every Python version: the wheel is tagged
py3-none-<platform>.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

LIBRARY = "tilelang.runtime.libtilelang_runtime"  # where the package looks for it


class BuildLauncher(build_ext):
    """Runs CMake on CMakeLists.txt and puts the library where the package looks for it."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext: Extension) -> None:
        cmake = shutil.which("cmake")
        if cmake is None:
            raise RuntimeError("building tilelang needs CMake (pip install cmake) and a C++17 compiler")
        source = Path(__file__).parent.resolve()
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        python = f"-DPython_EXECUTABLE={sys.executable}"
        subprocess.check_call([cmake, "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", python])
        subprocess.check_call([cmake, "--build", str(build), "--target", "tilelang_runtime", "--parallel", "2"])
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / target.name, target)


class PlatformWheel(bdist_wheel):
    """One wheel per platform for all Python versions."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension(LIBRARY, sources=[])],
    cmdclass={"build_ext": BuildLauncher, "bdist_wheel": PlatformWheel},
)
