"""A Maven repository in a folder: mlcc's JARs, and among them `mlcc-jvm` with the native parts."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Sequence
from pathlib import Path

from packing import ANDROID, ROOT, PackingError
from packing.parts import LIST
from tools.python_zip import DATE

NATIVE = "dev/mlcc/native"
"""Where Kotlin looks for them (`Packed`)."""
_MODULES = ("mlcc-core", "mlcc-djl", "mlcc-openai")
SPACE = {"": "http://maven.apache.org/POM/4.0.0"}


def publish(parts: Sequence[Path], repository: Path) -> Path:
    """Write all that a program of the JVM names, as Maven built it, and return mlcc-jvm's JAR.

    parts: folders of `parts.make`, one a platform. Raises PackingError.
    """
    version = publish_modules(repository, _MODULES)
    _put(ANDROID / "mlcc-jvm" / "pom.xml", repository, "mlcc-jvm", version, "pom")
    jar = place(repository, "mlcc-jvm", version, "jar")
    write(parts, jar)
    return jar


def publish_modules(repository: Path, names: Sequence[str]) -> str:
    """Modules as Maven built them, and their parent; return their version."""
    version = str(ET.parse(ANDROID / "pom.xml").findtext("version", namespaces=SPACE))
    _put(ANDROID / "pom.xml", repository, "mlcc-parent", version, "pom")
    for name in names:
        built = ANDROID / name / "target" / f"{name}-{version}.jar"
        if not built.exists():
            raise PackingError(f"{built} is not there; type: mvn -f mobile/android package")
        _put(ANDROID / name / "pom.xml", repository, name, version, "pom")
        _put(built, repository, name, version, "jar")
    return version


def place(repository: Path, name: str, version: str, kind: str) -> Path:
    """Where Maven looks for a file of a module."""
    folder = repository / "dev" / "mlcc" / name / version
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{version}.{kind}"


def write(parts: Sequence[Path], jar: Path) -> None:
    """The JAR of native parts. Raises PackingError for none, or two of one platform."""
    found = {}
    for folder in parts:
        if not (folder / LIST).exists():
            raise PackingError(f"{folder} has no {LIST}; type: package.py parts {folder}")
        platform = json.loads((folder / LIST).read_text(encoding="utf-8"))["platform"]
        if found.setdefault(platform, folder) != folder:
            raise PackingError(f"{folder} and {found[platform]} are both for {platform}")
    if not found:
        raise PackingError("no native parts are there; type: package.py parts FOLDER")
    partial = jar.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        add(archive, "META-INF/LICENSE", (ROOT / "LICENSE").read_bytes())
        add(archive, f"{NATIVE}/platforms", "\n".join(sorted(found)).encode())
        for platform, folder in sorted(found.items()):
            add_folder(archive, f"{NATIVE}/{platform}", folder)
    partial.replace(jar)


def add_folder(archive: zipfile.ZipFile, name: str, folder: Path) -> None:
    """All files below a folder, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            add(archive, f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """A file, with the same bytes and the same date each time."""
    archive.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED, 9)


def _put(file: Path, repository: Path, name: str, version: str, kind: str) -> None:
    shutil.copyfile(file, place(repository, name, version, kind))
