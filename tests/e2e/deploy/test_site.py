"""The documentation as a site: complete, without dead links, and without content of other hosts."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

from mlcc.cli import Commands
from tools import site
from tools.site import ROOT

OUTSIDE = re.compile(r"^(https?:)?//")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    site.build(folder)  # strict: a warning of MkDocs, a dead anchor among them, ends it
    return folder


class Loads(HTMLParser):
    """The URLs that a page loads, without its links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        address = of.get("href") if tag == "link" else of.get("src")
        if address and of.get("rel") != "canonical":
            self.found.append(address)


def test_every_page_is_there_and_loads_nothing_from_elsewhere(built: Path) -> None:
    pages = sorted(built.rglob("*.html"))
    names = {str(page.relative_to(built)) for page in pages}
    assert {"index.html", "docs/start/server.html", "docs/reference/engine.html"} <= names
    own = [page for page in pages if not (ROOT / page.relative_to(built)).exists()]
    assert len(pages) - len(own) <= 2, "examples that are pages themselves"
    for page in own:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.found
        assert [found for found in loads.found if OUTSIDE.match(found)] == [], page


def test_what_tests_write_and_docstrings_say_is_shown(built: Path) -> None:
    assert "<th>" in (built / "docs" / "features.html").read_text()
    assert "<th>" in (built / "docs" / "clients.html").read_text()
    engine = (built / "docs" / "reference" / "engine.html").read_text()
    assert "Threads and tasks may call it concurrently" in engine
    assert "load_adapter" in engine


FILES = {"README.md", "web/README.md", "docs/a.md", "LICENSE", "tests/README.md"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see [b](../web/)", "see [b](../web/README.md)"),
        ("see [b](../README.md#use) and [c](#own)", "see [b](../README.md#use) and [c](#own)"),
        ("[tests](../tests/README.md) are left out", "tests are left out"),
        ("so:\n- a\n  - b\n    c", "so:\n\n- a\n    - b\n        c"),
        ("1. a\n   ```\n   [x](y)\n   ```", "1. a\n    ```\n    [x](y)\n    ```"),
        ("- a\n\nb\n  c", "- a\n\nb\n  c"),
    ],
)
def test_pages_as_mkdocs_reads_them(text: str, shown: str) -> None:
    assert site.staged("docs/a.md", text, FILES, set()) == shown + "\n"


def test_what_is_linked_goes_along_and_a_dead_link_is_named() -> None:
    linked: set[str] = set()
    site.staged("docs/a.md", "[terms](../LICENSE)", FILES, linked)
    assert linked == {"LICENSE"}
    with pytest.raises(site.BrokenLinkError, match=r"docs/a\.md:2: gone\.md leads to no file"):
        site.staged("docs/a.md", "a\n[b](gone.md)", FILES, linked)


BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


MLCC = re.compile(r"^(?:mlcc|python3 dev\.py run) (.*)", re.MULTILINE)


def typed() -> list[str]:
    """The arguments of every `mlcc` command on the pages for the first five minutes."""
    pages = sorted((site.ROOT / "docs" / "start").glob("*.md"))
    blocks = [block for page in pages for block in BLOCK.findall(page.read_text())]
    return [line for block in blocks for line in MLCC.findall(block)]


@pytest.mark.parametrize("line", typed())
def test_commands_are_what_the_first_pages_say(line: str) -> None:
    """Commands are parsed, not run: a removed command or option fails."""
    name, *rest = shlex.split(line, comments=True)
    commands = Commands()
    command = commands.get_command(click.Context(commands), name)
    assert command
    known = {option: one for one in command.params for option in [*one.opts, *one.secondary_opts]}
    for word in rest:
        assert not word.startswith("-") or word in known, word
