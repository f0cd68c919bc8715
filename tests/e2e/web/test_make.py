"""`web/tools/make.py` keeps what it made in the user's cache, for other checkouts."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.web_package import MAKE


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """(checkout, text of its source, version of the tool) -> the files that a step leaves."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(MAKE.parent))
    tools: dict[str, Any] = runpy.run_path(str(MAKE))

    def run(checkout: str, text: str, tool: str = "(24, 1)") -> list[str]:
        root = tmp_path / checkout
        web, source = root / "web", root / "source.ts"
        (web / "dist/lib").mkdir(parents=True, exist_ok=True)
        source.write_text(text)

        def build() -> None:
            (web / "dist/lib/index.js").write_text(f"built of {text} in {checkout}")

        monkeypatch.setitem(tools["kept"].__globals__, "WEB", web)
        monkeypatch.setitem(tools["kept"].__globals__, "ROOT", root)
        tools["kept"]([source], tool, [web / "dist"], build)()
        return [path.read_text() for path in (web / "dist").rglob("*.js")]

    return run


def test_equal_sources_are_built_once(make: Callable[..., list[str]]) -> None:
    assert make("one", "a") == ["built of a in one"]
    assert make("two", "a") == ["built of a in one"]
    assert make("two", "b") == ["built of b in two"]
    assert make("one", "b") == ["built of b in two"]


def test_other_tools_build_anew(make: Callable[..., list[str]]) -> None:
    assert make("one", "a") == ["built of a in one"]
    assert make("two", "a", "(26, 0)") == ["built of a in two"]


def test_nothing_else_stays_in_the_folder(make: Callable[..., list[str]], tmp_path: Path) -> None:
    make("one", "a")
    old = tmp_path / "two/web/dist/old/left.js"
    old.parent.mkdir(parents=True)
    old.write_text("of other sources")
    assert make("two", "a") == ["built of a in one"]


def test_packages_are_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(MAKE.parent))
    tools: dict[str, Any] = runpy.run_path(str(MAKE))

    def found(checkout: str, lock: str) -> str:
        """Where the packages were installed that a checkout finds."""
        root = tmp_path / checkout
        modules = root / "node_modules"
        root.mkdir(exist_ok=True)
        (root / "package-lock.json").write_text(lock)

        def npm() -> None:
            (modules / "vite").mkdir(parents=True, exist_ok=True)
            (modules / "vite/index.js").write_text(checkout)
            (modules / "vite/link.js").symlink_to("index.js")

        for name, value in (("MODULES", modules), ("ROOT", root)):
            monkeypatch.setitem(tools["installed"].__globals__, name, value)
        tools["installed"]([root / "package-lock.json"], "(24, 1)", npm)
        assert (modules / "vite/link.js").is_symlink()
        return (modules / "vite/link.js").read_text()

    assert found("one", "a") == "one"
    assert found("two", "a") == "one"
    (tmp_path / "two/node_modules/left.js").write_text("of another lock")
    assert found("two", "a") == "one" and not (tmp_path / "two/node_modules/left.js").exists()
    assert found("three", "b") == "three"
    assert [path.name for path in (tmp_path / "cache/mlcc/npm").glob("*/vite")] == ["vite"]
    assert found("four", "a") == "four"
