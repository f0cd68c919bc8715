"""The files for pip, Homebrew and winget: complete, and with the versions and hashes of a release.

winget's were checked by hand against its JSON schemas of version 1.12.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import package_managers

URL = "https://files.example.org/mlcc/0.1.0"
FILES = (
    "mlcc-0.1.0-py3-none-macosx_13_0_arm64.whl",
    "mlcc-0.1.0-py3-none-macosx_13_0_x86_64.whl",
    "mlcc-0.1.0-py3-none-manylinux_2_17_x86_64.whl",
    "mlcc-0.1.0-py3-none-manylinux_2_17_aarch64.whl",
    "mlcc-0.1.0-py3-none-win_amd64.whl",
    "mlcc_web-0.1.0-py3-none-any.whl",
    "mlcc-0.1.0-windows-x86_64.zip",
    "mlcc-0.1.0.tar.gz",
    "mlcc-0.1.0.tgz",
)
REQUIRED = {  # by winget's schemas
    "installer": "PackageIdentifier PackageVersion Installers ManifestType ManifestVersion",
    "defaultLocale": "PackageIdentifier PackageVersion PackageLocale Publisher PackageName License "
    "ShortDescription ManifestType ManifestVersion",
    "version": "PackageIdentifier PackageVersion DefaultLocale ManifestType ManifestVersion",
}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_text(name)
    package_managers.write(tmp_path, "0.1.0", f"{URL}/")
    return tmp_path


def sha256(name: str) -> str:
    """Of a file of the release, which holds its own name."""
    return hashlib.sha256(name.encode()).hexdigest()


def winget(release: Path) -> dict[str, Any]:
    found = [yaml.safe_load(path.read_text()) for path in (release / "winget").iterdir()]
    return {each["ManifestType"]: each for each in found}


def test_nothing_is_left_to_fill_in(release: Path) -> None:
    for template in package_managers.TEMPLATES:
        assert not re.search(r"@[A-Z_]+@", (release / template).read_text(encoding="utf-8"))
    with pytest.raises(KeyError):
        package_managers.filled("homebrew/mlcc.rb", {"VERSION": "0.1.0"})


def test_winget_has_what_its_schemas_require(release: Path) -> None:
    manifests = winget(release)
    assert set(manifests) == set(REQUIRED)
    for kind, keys in REQUIRED.items():
        assert set(keys.split()) <= set(manifests[kind])
        assert manifests[kind]["PackageIdentifier"] == "mlcc.mlcc"
        assert manifests[kind]["PackageVersion"] == "0.1.0"


def test_winget_downloads_the_zip_and_finds_the_command(release: Path) -> None:
    installer = winget(release)["installer"]
    (one,) = installer["Installers"]
    name = "mlcc-0.1.0-windows-x86_64.zip"
    assert one["InstallerUrl"] == f"{URL}/{name}"
    assert one["InstallerSha256"] == sha256(name).upper()
    (nested,) = installer["NestedInstallerFiles"]
    assert nested == {"RelativeFilePath": "mlcc\\mlcc.exe", "PortableCommandAlias": "mlcc"}


def test_homebrew_has_a_wheel_for_each_machine(release: Path) -> None:
    """Each file has its hash below it. Blocks must be closed; a formula is Ruby (`ruby -c` was run
    by hand)."""
    text = (release / "homebrew" / "mlcc.rb").read_text(encoding="utf-8")
    code = [line for line in text.splitlines() if not line.startswith("#")]
    opened = sum(bool(re.match(r"\s*(class|def) |.* do$", line)) for line in code)
    assert opened == sum(line.strip() == "end" for line in code) == 9
    pairs = re.findall(r'url "(.*?)", using: :nounzip\s+sha256 "(\w+)"', text)
    assert pairs == [(f"{URL}/{name}", sha256(name)) for name in FILES[:4]]


def test_pips_index_names_each_file_with_its_hash(release: Path) -> None:
    def links(*folders: str) -> list[str]:
        page = release.joinpath("simple", *folders, "index.html").read_text(encoding="utf-8")
        return re.findall(r'href="(.*?)"', page)

    assert links() == ["mlcc/", "mlcc-web/"]
    found = [link.partition("#sha256=") for project in links() for link in links(project)]
    named = {path.rpartition("/")[2]: digest for path, _, digest in found}
    files = {name for name in FILES if name.endswith((".whl", ".tar.gz"))}
    assert named == {name: sha256(name) for name in files}
    for path, _, _ in found:
        assert (release / "simple" / "mlcc" / path).resolve().is_file()
