"""Pages are short, and docs/internals names files that exist: every path of Python code in
backticks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "internals").glob("*.md"))
GUIDES = sorted([*DOCS.glob("*.md"), *(DOCS / "start").glob("*.md"), ROOT / "README.md"])
BASES = [
    ROOT,
    ROOT / "runtime",
    ROOT / "runtime" / "mlcc",
    ROOT / "compiler" / "mlcc_compiler",
]
"""A page may leave out the package in which a path is."""
NAMED = re.compile(r"`([\w./-]+/[\w.-]+\.py)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    missing = [path for path in named if not any((base / path).is_file() for base in BASES)]
    assert not missing


def test_pages_name_files() -> None:
    assert len(NAMED.findall((ROOT / "docs" / "internals" / "structure.md").read_text())) > 40


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_is_short(page: Path) -> None:
    """At most 150 lines, of 100 columns (README 110) beside tables and what a test writes."""
    lines = page.read_text(encoding="utf-8").splitlines()
    columns = 110 if page.stem == "README" else 100
    written = page.stem == "features"
    long = [text for text in lines if len(text) > columns and not text.startswith("|")]
    assert len(lines) <= 150 and (written or not long), long
