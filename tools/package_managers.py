"""Files by which pip, Homebrew and winget install a release, with its version and hashes.

deploy/homebrew and deploy/winget hold them with `@NAME@` for what a release decides. pip's is a
"simple repository" (PEP 503): a folder for each project with links to its files.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
TEMPLATES = (
    "homebrew/mlcc.rb",
    *(f"winget/mlcc{end}.yaml" for end in (".installer", ".locale.en-US", "")),
)
PLACE = "https://example.org/mlcc"
"""Where the files are, unless `dev.py release --url` names the place."""
_FILES = {
    "MACOS": "-macosx_13_0_arm64.whl",
    "MACOS_INTEL": "-macosx_13_0_x86_64.whl",
    "LINUX": "-manylinux_2_17_x86_64.whl",
    "LINUX_ARM": "-manylinux_2_17_aarch64.whl",
    "WINDOWS": "-windows-x86_64.zip",
}
"""Name in a template -> the end of a file's name."""
_NAME = re.compile(r"@([A-Z0-9_]+)@")


def write(release: Path, version: str, url: str = PLACE) -> None:
    """Write them into a folder with the files of a release. Raises KeyError if a template has a
    name that is none."""
    names = sorted(path.name for path in release.iterdir() if path.is_file())
    values = {"VERSION": version, "URL": url.rstrip("/")}
    for key, end in _FILES.items():
        (name,) = (each for each in names if each.startswith("mlcc-") and each.endswith(end))
        values |= {key: name, f"{key}_SHA256": _sha256(release / name)}
    for template in TEMPLATES:
        made = release / template
        made.parent.mkdir(exist_ok=True)
        made.write_text(filled(template, values), encoding="utf-8")
    write_index(release, [name for name in names if name.endswith((".whl", ".tar.gz"))])


def filled(template: str, values: Mapping[str, str]) -> str:
    """A template's text. winget writes hashes in capitals, Homebrew in small letters."""
    text = (DEPLOY / template).read_text(encoding="utf-8")
    capitals = template.startswith("winget/")

    def value(match: re.Match[str]) -> str:
        found = values[match[1]]
        return found.upper() if capitals and match[1].endswith("_SHA256") else found

    return _NAME.sub(value, text)


def write_index(release: Path, names: Sequence[str]) -> None:
    """simple/PROJECT/index.html, with the hash of each file."""
    by_project: dict[str, list[str]] = {}
    for name in names:
        by_project.setdefault(name.partition("-")[0].replace("_", "-"), []).append(name)
    _write_links(release / "simple", {f"{project}/": project for project in by_project})
    for project, files in by_project.items():
        links = {f"../../{name}#sha256={_sha256(release / name)}": name for name in files}
        _write_links(release / "simple" / project, links)


def _write_links(folder: Path, links: Mapping[str, str]) -> None:
    """A page of links: address -> text."""
    lines = [
        f'<a href="{html.escape(to)}">{html.escape(text)}</a><br>' for to, text in links.items()
    ]
    folder.mkdir()
    page = "\n".join(["<!DOCTYPE html>", "<title>mlcc</title>", *lines, ""])
    (folder / "index.html").write_text(page, encoding="utf-8")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
