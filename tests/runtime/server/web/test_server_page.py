"""The chat page of servers, which esbuild makes alone: whole, the same each time, and of packages
with the hashes of the lock file."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from mlcc.errors import UnsupportedError
from mlcc.server import web
from tests.runtime.commands.small_site import serving_files

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def tool() -> Any:
    sys.path.insert(0, str(ROOT / "web" / "tools"))
    import server_page

    return server_page


@pytest.fixture(scope="module")
def page(tool: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("served") / "page"
    before = {path.name for path in tool.WEB.iterdir()}
    assert tool.build_or_explain(folder) == ""
    assert {path.name for path in tool.WEB.iterdir()} == before
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_it_is_whole_and_small(page: Path) -> None:
    files = contents(page)
    index = files["index.html"].decode()
    named = re.findall(r'(?:href|src)="\./([^"]+)"', index)
    assert len(named) == 3 and set(named) <= set(files)
    (sheet,) = (name for name in files if name.endswith(".css"))
    fonts = re.findall(rb"url\(\"?\./([^)\"]+\.woff2)", files[sheet])
    assert len(fonts) > 15 and {f"assets/{font.decode()}" for font in fonts} <= set(files)
    scripts = b"".join(data for name, data in files.items() if name.endswith(".js"))
    chunks = set(re.findall(rb'import\("\./([^"]+)"\)', scripts))
    assert len(chunks) >= 2 and {f"assets/{chunk.decode()}" for chunk in chunks} <= set(files)
    assert sum(map(len, files.values())) < 1_500_000
    for library in (b"markdown-it 14", b"katex 0", b"lowlight 3", b"highlight.js 11"):
        assert library in files["licences.txt"]


def test_it_is_the_same_each_time_and_made_once(tool: Any, page: Path, tmp_path: Path) -> None:
    again = tmp_path / "page"
    tool.build(again)
    assert contents(again) == contents(page)
    before = (page / "index.html").stat().st_mtime_ns
    assert tool.build_or_explain(page) == ""
    assert (page / "index.html").stat().st_mtime_ns == before


def test_a_server_finds_it_last(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "find_spec", lambda name: None)
    monkeypatch.setattr(web, "_IN_CLONE", tmp_path)
    monkeypatch.setattr(web, "_FOR_SERVERS", page)
    assert web.page_folder() == page
    with pytest.raises(UnsupportedError, match="no engine for a tab; install the wheel mlcc-web"):
        web.page_folder(in_tab=True)
    with TestClient(Starlette(routes=web.page_routes(page))) as client:
        assert '<script type="module"' in client.get("/").text
        assert client.get("/site.json").json() == {
            "api": "./",
            "model": None,
            "mcp": [],
            "loads": False,
            "pulls": False,
        }
    (tmp_path / "index.html").write_text("whole")
    (tmp_path / "worker.js").write_text("")
    assert web.page_folder() == web.page_folder(in_tab=True) == tmp_path


def archive(**files: str) -> bytes:
    """An npm package of these files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


def test_packages_are_fetched_by_their_hash(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = archive(**{"package/lib/a.js": "a", "package/../../evil": "x", "package/..": "y"})
    right = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    with serving_files({"/@o/lib/-/lib-1.2.3.tgz": data}, {}) as url:
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", url + "/")
        entry = {"version": "1.2.3", "integrity": right}
        tool.unpack(tool.fetch("@o/lib", entry), tmp_path / "in" / "lib")
        with pytest.raises(tool.PageError, match="another hash than package-lock"):
            tool.fetch("@o/lib", entry | {"integrity": "sha512-" + "A" * 86 + "=="})
        with pytest.raises(tool.PageError, match="other cannot be fetched"):
            tool.fetch("other", entry)
    assert contents(tmp_path) == {"in/lib/lib/a.js": b"a"}


def test_the_lock_names_all_that_is_fetched(tool: Any) -> None:
    names = dict(tool.wanted())
    assert {*tool.LIBRARIES, tool.package_of_esbuild(), "highlight.js"} <= set(names)
    assert len(names) < 25
    assert all(entry["integrity"].startswith("sha512-") for entry in names.values())


def test_a_folder_with_anything_else_is_not_replaced(tool: Any, tmp_path: Path) -> None:
    kept = tmp_path / "work" / "thesis.md"
    kept.parent.mkdir()
    kept.write_text("years of work")
    assert "is no page (thesis.md is there)" in tool.build_or_explain(kept.parent)
    assert kept.read_text() == "years of work" and [*tmp_path.iterdir()] == [kept.parent]
    assert "is no page (a file is there)" in tool.build_or_explain(kept)
