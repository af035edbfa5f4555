# SPDX-License-Identifier: Apache-2.0
"""Every kind of report has a faulty program and the exact text that the simulator answers it with.

`reports/<kind>[-variant].py` has `main`, a tile program; `damage(device)` where the compiler would not write the fault
itself; ARGUMENTS for scalars and constant tensors, or `arguments()`; OPTIONS for `simulate`. `reports/<name>.txt` is
the text of the first report of the kind. `--update-golden` rewrites the texts.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang.sim
from tilelang.sim import KINDS, simulate
from tilelang.tools.errors import describe_error
from tilelang.transform.pipeline import lower

PROGRAMS = Path(__file__).parent / "reports"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.py"))


def kind_of(name: str) -> str:
    """The longest kind that the name of a program starts with."""
    return max((k for k in KINDS if name == k or name.startswith(f"{k}-")), key=len, default="")


VARIANTS = {"wgmma-operand": "race-rw"}  # a kind that has a name of its own among people


def argument(param: Any, given: dict[str, Any]) -> Any:
    if param.name in given and not hasattr(param.ty, "shape"):
        return given[param.name]
    shape, dtype = [int(x) for x in param.ty.shape], str(param.ty.dtype)
    if param.name in given:
        return np.full(shape, given[param.name], dtype)
    strides = [int(s) for s in param.ty.strides or []]
    whole = np.ones([*shape[:-1], strides[-2]] if strides else shape, dtype)
    return whole[..., : shape[-1]]


def run(name: str) -> tuple[Any, str]:
    """The result of a program, and the text of the report that it is about."""
    path = PROGRAMS / f"{name}.py"
    program = runpy.run_path(str(path))
    device = lower(program["main"], "sm_90a")
    device = program["damage"](device) if "damage" in program else device
    given = program.get("ARGUMENTS", {})
    arguments = program["arguments"]() if "arguments" in program else [argument(p, given) for p in device.params]
    result = simulate(device, arguments, **program.get("OPTIONS", {}))
    kind = VARIANTS.get(name) or kind_of(name)
    found = [r for r in result.reports if r.kind == kind]
    assert found, f"{name} gives {result.kinds or 'no report'}\n{result}"
    return result, found[0].render().replace(str(path), "<program>") + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_rendered_report(name: str, request: pytest.FixtureRequest) -> None:
    _, text = run(name)
    golden = PROGRAMS / f"{name}.txt"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(text)
    assert golden.exists(), f"{golden.name} is missing; run with --update-golden and review it"
    assert text == golden.read_text()


def test_every_kind_has_a_program() -> None:
    assert {VARIANTS.get(n) or kind_of(n) for n in NAMES} == set(KINDS)
    assert {p.stem for p in PROGRAMS.glob("*.txt")} == set(NAMES)


def test_the_catalogue_has_every_kind_that_is_reported() -> None:
    """Kinds are the first argument of `report`, `trap`, `file` and `_file`."""
    room = Path(tilelang.sim.__file__).parent
    text = "\n".join(p.read_text() for p in room.glob("*.py") if p.name != "kinds.py")
    named = set(re.findall(r"""(?:report|trap|file|_file)\(\s*["']([a-z-]+)["']""", text))
    named |= {k for k in ("race-ww", "race-wr", "livelock", "deadlock") if f'"{k}"' in text}
    assert named == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_explained(kind: str) -> None:
    text = describe_error(kind)
    assert text is not None and KINDS[kind].meaning in text and KINDS[kind].help in text
