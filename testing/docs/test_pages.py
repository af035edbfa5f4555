# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/language are whole: every public name has an example, every link leads somewhere."""

from __future__ import annotations

import re

import pytest

import tilelang
import tilelang.language as T
from tilelang.jit import PassConfigKey
from tilelang.tir_builder.dtypes import DTYPE_NAMES
from tilelang.tools.examples import PAGES, TARGETS, anchor, examples, index_page, names_of, pages

EXAMPLES = [e for page in pages() for e in examples(page)]
USED = set().union(*(names_of(e.source) for e in EXAMPLES))
TYPES = [n for n in DTYPE_NAMES if "x" not in n]  # vectors are shown by some of them
# Of the package: what a kernel's author does not call.
ELSEWHERE = {"PerformanceWarning", "__version__", "language", "lower", "tvm"}


def test_every_name_of_the_language_has_an_example():
    assert sorted(n for n in set(T.__all__) - set(DTYPE_NAMES) if f"T.{n}" not in USED) == []


def test_every_name_of_the_package_has_an_example():
    shown = {n.split(".")[1] for n in USED if n.startswith("tilelang.")}
    assert sorted(set(tilelang.__all__) - shown - ELSEWHERE) == []


def test_every_element_type_is_spoken_of():
    text = (PAGES / "types.md").read_text(encoding="utf-8") + "".join(e.source for e in EXAMPLES)
    missing = [n for n in TYPES if not re.search(rf"\b{n}\b", text)]
    assert missing == []


def test_names_that_the_pages_speak_of_exist():
    for page in pages():
        for name in re.findall(r"`T\.([A-Za-z]\w*)", page.read_text(encoding="utf-8")):
            assert hasattr(T, name), f"{page.name} speaks of T.{name}"


def test_every_section_has_an_example_and_a_place_in_the_contents():
    contents = (PAGES / "README.md").read_text(encoding="utf-8")
    for page in pages():
        if page.name == "README.md":
            continue
        shown = {e.section for e in examples(page)}
        for section in re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert section in shown, f"{page.name}: {section} has no example"
            assert f"({page.name}#{anchor(section)})" in contents, f"{page.name}: {section} is not in the contents"


@pytest.mark.parametrize("page", [*pages(), PAGES / "index.md"], ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    for path, place in re.findall(r"\]\(([\w./-]+)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
        target = (page.parent / path).resolve()
        assert target.exists(), path
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert not place or place in map(anchor, headings), f"{path}#{place}"


def test_targets_of_examples_are_targets():
    assert {t for e in EXAMPLES for t in e.targets} <= set(TARGETS)


def test_keys_that_the_pages_name_exist():
    for page in pages():
        for key in re.findall(r"[`\"](tl\.[a-z_0-9]+)[`\"]", page.read_text(encoding="utf-8")):
            assert key in {k.value for k in PassConfigKey}, f"{page.name} names {key}"


def test_the_index_is_up_to_date():
    assert (PAGES / "index.md").read_text(encoding="utf-8") == index_page(), "run `make docs`"


def test_lines_fit():
    for page in pages():
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            assert len(line) <= 130 or line.startswith("|"), f"{page.name}:{number}"
