"""docs/internals names files that exist: every path of Python code in backticks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))
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
