"""Every method has a section in docs/methods.md: paper, equations as in its module, and deliberate differences."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tedtrajrec.methods.registry import METHODS, documented

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?:^ {4}.*\n?)+", re.MULTILINE)


def anchor(heading: str) -> str:
    """Return the anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Return the text below each heading by its anchor; one ends where the next heading begins."""
    parts = re.split(r"^#+ (.*)\n", (DOCS / "methods.md").read_text("utf-8"), flags=re.MULTILINE)
    anchors = [anchor(heading) for heading in parts[1::2]]
    assert len(set(anchors)) == len(anchors)
    return dict(zip(anchors, parts[2::2], strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_section(name: str, sections: dict[str, str]) -> None:
    section = sections[documented(name).partition("#")[2]]
    paper = METHODS[name].paper
    blocks = [block.rstrip("\n") for block in BLOCK.findall(section)]
    in_module = BLOCK.findall(inspect.getdoc(importlib.import_module(f"tedtrajrec.methods.{name}")) or "")
    if in_module:
        assert blocks[0] == in_module[0].rstrip("\n")
    else:
        assert any("=" in block for block in blocks)
    if paper == "this project":
        assert section.strip().startswith("Ours")
        return
    assert "paper" in section.split("\n\n")[0] or paper.partition(",")[0].split()[0] in section
    rows = re.findall(r"^\| (?!what)[^-].* \| .* \| .* \|$", section, flags=re.MULTILINE)
    assert len(rows) >= 2


def test_links_to_sections(sections: dict[str, str]) -> None:
    for file in DOCS.parent.joinpath("README.md"), *DOCS.rglob("*.md"):
        for found in re.findall(r"\(\S*methods\.md#([^)\s]+)\)", file.read_text("utf-8")):
            assert found in sections, f"{file}: {found}"
