"""Builds all files of a release from the last commit into one folder.

    python -m tools.release [FOLDER] [--url URL]       (dist/release)

Wheels for Linux on x86-64 and aarch64, Windows on x86-64, macOS on arm64 and x86-64, the wheel for
browsers, one without C++ for Pyodide, a zip for Windows without Python, the source distribution,
npm's package, a bill of materials with third-party licences, checksums, and the files of package
managers, for which URL is where the files will be. The result depends only on the commit and on
the pinned tools: two runs give the same bytes on any machine (tests/e2e/deploy checks it).
Publishing is a separate step.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from tools import bill, package_managers, windows_zip

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "dist" / "release"
SYSTEMS = {
    "Linux on x86_64": {"MLCC_WHEEL_MACHINE": "x86_64"},
    "Linux on aarch64": {"MLCC_WHEEL_MACHINE": "aarch64"},
    "Windows on x86_64": {"MLCC_WHEEL_SYSTEM": "windows"},
    "macOS on arm64": {"MLCC_WHEEL_SYSTEM": "macos"},
    "macOS on x86_64": {"MLCC_WHEEL_SYSTEM": "macos-intel"},
}
"""What each wheel is for, and the variables of `hatch_build.py` for it."""
POM = r"<version>(.+?)</version>"
VERSIONS = {
    "pyproject.toml": r'^version = "(.+?)"',
    "runtime/mlcc/version.py": r'^__version__ = "(.+?)"',
    "web/package.json": r'^  "version": "(.+?)"',
    "web/wheel/pyproject.toml": r'^version = "(.+?)"',
    "mobile/android/pom.xml": POM,
}
"""The files with the version, and the pattern of each."""
WHEEL = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w")


class ReleaseError(Exception):
    """A release is not possible; the message says what to do first."""


def versions() -> dict[str, str]:
    """The version in each file."""
    found = {name: _first(pattern, ROOT / name) for name, pattern in VERSIONS.items()}
    poms = (ROOT / "mobile" / "android").glob("mlcc-*/pom.xml")  # each names its parent's
    found |= {str(pom.relative_to(ROOT)): _first(POM, pom) for pom in sorted(poms)}
    return found


def notes(version: str) -> str:
    """The section of a version in CHANGELOG.md. Raises ReleaseError."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if head.split()[0] == version:
            return body.strip()
    raise ReleaseError(f"CHANGELOG.md has no '## {version}'; write what users should know of it")


def check() -> str:
    """Check that the commit can be released; returns its version. Raises ReleaseError."""
    by_file = versions()
    if len(set(by_file.values())) > 1:
        lines = ", ".join(f"{name} {version}" for name, version in by_file.items())
        raise ReleaseError(f"versions differ: {lines}")
    version = by_file["pyproject.toml"]
    notes(version)
    if changed := _git("status", "--porcelain", "--untracked-files=no"):
        raise ReleaseError(f"a release is made of a commit; commit or stash first:\n{changed}")
    return version


def make(output: Path, version: str, url: str = package_managers.PLACE) -> list[Path]:
    """Build all files into `output`, atomically. web/dist must be built. Raises ReleaseError, also
    for a folder that holds anything but a release: it would be deleted."""
    if output.is_dir() and any(output.iterdir()) and not (output / "SHA256SUMS").is_file():
        raise ReleaseError(f"{output} is no release, and would be replaced; give a new folder")
    seconds = int(_git("log", "-1", "--format=%ct"))
    os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        made = Path(folder) / "release"
        made.mkdir()
        for system, variables in SYSTEMS.items():
            say(f"the wheel for {system}")
            tree = _export(Path(folder) / system.replace(" ", "-"))
            _python(*WHEEL, made, tree, env=variables)
        say("the zip for Windows")
        (wheel,) = made.glob("*-win_amd64.whl")
        archive = windows_zip.make(wheel, made / f"mlcc-{version}-windows-x86_64.zip")
        say("the source, and what browsers need")
        _python("-m", "hatchling", "build", "-t", "sdist", "-d", made, cwd=tree)
        _python("-m", "mlcc_targets.wasm.build")
        _python(*WHEEL, made, ROOT / "web" / "wheel")
        _python(*WHEEL, made / "pyodide", tree, env={"MLCC_NO_NATIVE": "1"})
        _npm(made)
        parts = bill.parts(archive)
        at = datetime.fromtimestamp(seconds, timezone.utc)
        (made / f"mlcc-{version}.cdx.json").write_text(bill.as_json(version, at, parts))
        (made / f"mlcc-{version}-licences.txt").write_text(bill.as_text(parts))
        files = sorted(path for path in made.rglob("*") if path.is_file())
        sums = "".join(f"{sha256(path)}  {path.relative_to(made)}\n" for path in files)
        (made / "SHA256SUMS").write_text(sums)
        package_managers.write(made, version, url)
        shutil.rmtree(output, ignore_errors=True)
        made.rename(output)
    return sorted(path for path in output.rglob("*") if path.is_file())


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def say(text: str) -> None:
    print(f"release: {text}", file=sys.stderr, flush=True)


def _export(folder: Path) -> Path:
    """The files of the last commit, without untracked ones."""
    archive = subprocess.run(("git", "archive", "HEAD"), cwd=ROOT, check=True, capture_output=True)
    folder.mkdir()
    subprocess.run(("tar", "-x", "-C", str(folder)), input=archive.stdout, check=True)
    return folder


def _npm(output: Path) -> None:
    """npm's package, packed by npm, which gives all files the same timestamp."""
    npm = shutil.which("npm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if not npm:
        raise ReleaseError("npm is not here; type: python3 dev.py release (which brings Node)")
    command = (npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(output))
    if subprocess.run(command, cwd=ROOT / "web", stdout=subprocess.DEVNULL, check=False).returncode:
        raise ReleaseError("`npm pack` failed (see above)")


def _first(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return found[1] if found else "none"


def _git(*words: str) -> str:
    done = subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _python(*words: object, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, check=False)
    if done.returncode:
        raise ReleaseError(f"`{' '.join(command[1:5])} ...` failed (see above)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="dev.py release")
    parser.add_argument("folder", nargs="?", type=Path, default=OUTPUT)
    parser.add_argument("--url", default=package_managers.PLACE, help="where the files will be")
    given = parser.parse_args()
    output: Path = given.folder.resolve()
    try:
        for path in make(output, check(), given.url):
            print(f"{path.stat().st_size:>12,}  {path.relative_to(output.parent)}")
    except ReleaseError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
