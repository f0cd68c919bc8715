"""The contents of a release; two releases of one commit are equal to the byte."""

from __future__ import annotations

import json
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from mlcc.util import user_folders
from mlcc.version import __version__
from tests.helpers.web_package import has_grammars
from tools import bill, release


def test_one_version_and_the_changelog_has_it() -> None:
    by_file = release.versions()
    assert set(by_file.values()) == {__version__}
    assert len(by_file) >= 10
    assert release.notes(__version__)
    with pytest.raises(release.ReleaseError, match=r"CHANGELOG\.md has no '## 9\.9'; write what"):
        release.notes("9.9")


def test_versions_that_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "versions", lambda: {"a.toml": "1.0", "b.toml": "1.1"})
    with pytest.raises(release.ReleaseError, match=r"versions differ: a\.toml 1\.0, b\.toml 1\.1"):
        release.check()


def test_the_bill_has_what_is_inside(web: Path) -> None:
    parts = bill.parts()
    names = {f"{part.kind}/{part.name}" for part in parts}
    assert {"pypi/apache-tvm", "pypi/ziglang", "npm/pyodide", "generic/cpython"} <= names
    assert ("cargo/llguidance" in names) == has_grammars()
    at = datetime(2026, 1, 2, tzinfo=timezone.utc)
    text = bill.as_json("1.2", at, parts)
    assert text == bill.as_json("1.2", at, parts)
    found = json.loads(text)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert found["metadata"]["timestamp"].startswith("2026-01-02T00:00")
    assert len(found["components"]) == len(parts) >= 20
    assert all(one["purl"] and one["licenses"] for one in found["components"])
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_the_licences_of_all_are_there(web: Path) -> None:
    parts = bill.parts()
    text = bill.as_text(parts)
    for part in parts:
        assert f"{part.name} {part.version}" in text
        assert part.terms and part.texts, part.name
        assert all(one.strip() in text for one in part.texts)


def test_a_text_that_several_share_is_there_once() -> None:
    one, other = (bill.Part("npm", name, "1.0", "MIT", ("Do as you like.",)) for name in "ab")
    text = bill.as_text([one, other])
    assert "a 1.0 (MIT)\nb 1.0 (MIT)\n\nDo as you like.\n" in text
    assert text.count("Do as you like.") == 1


@pytest.mark.long  # compiles the executor ten times
def test_two_releases_of_a_commit_are_the_same(
    web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> dict[str, str]:
        folder, cache = tmp_path / name, tmp_path / f"cache of {Path(name).name}" / "mlcc"
        cache.mkdir(parents=True)
        for kept in ("zig", "wasm"):  # but not the executors of earlier builds
            (user_folders.cache() / kept).mkdir(exist_ok=True)
            (cache / kept).symlink_to(user_folders.cache() / kept)
        with monkeypatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(cache.parent))
            files = release.make(folder, __version__)
        return {str(path.relative_to(folder)): release.sha256(path) for path in files}

    one, other = made("one"), made("elsewhere/other")
    assert one == other
    assert {"homebrew/mlcc.rb", "winget/mlcc.yaml", "simple/mlcc/index.html"} <= set(one)
    assert f"mlcc-{__version__}-windows-x86_64.zip" in one
    arm, intel, *wheels = sorted(name for name in one if name.endswith(".whl"))
    for mac, arch, kind in ((arm, "arm64", b"\x0c"), (intel, "x86_64", b"\x07")):
        assert mac.endswith(f"-py3-none-macosx_13_0_{arch}.whl")
        with zipfile.ZipFile(tmp_path / "one" / mac) as wheel:
            magic = wheel.read("mlcc/device/lib/libmlcc_executor.dylib")[:8]
            assert magic == b"\xcf\xfa\xed\xfe" + kind + b"\x00\x00\x01"  # 64 bits, this CPU
            assert not [name for name in wheel.namelist() if name.endswith((".so", ".pyd"))]
    assert [name.rpartition("_2_17_")[2] for name in wheels[:2]] == ["aarch64.whl", "x86_64.whl"]
    with zipfile.ZipFile(tmp_path / "one" / wheels[0]) as wheel:
        executor = wheel.read("mlcc/device/lib/libmlcc_executor.so")
    assert executor[18:20] == b"\xb7\x00"  # EM_AARCH64
    assert wheels[2].endswith("-py3-none-win_amd64.whl")
    with zipfile.ZipFile(tmp_path / "one" / wheels[2]) as wheel:
        assert wheel.read("mlcc/device/lib/libmlcc_executor.pyd")[:2] == b"MZ"
        assert not [name for name in wheel.namelist() if name.endswith((".so", ".lib"))]
    for line in (tmp_path / "one" / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert one[name] == digest
