"""Writes a Maven repository in a folder: mlcc's JARs, and `mlcc-jvm` with the native parts."""

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
"""The folder of native parts in the JAR (`ClasspathParts` of Kotlin)."""
_MODULES = ("mlcc-core", "mlcc-djl", "mlcc-openai")
SPACE = {"": "http://maven.apache.org/POM/4.0.0"}


def publish(parts: Sequence[Path], repository: Path) -> Path:
    """Write all modules that a JVM program depends on, and return the JAR of mlcc-jvm.

    parts: folders of `parts.make`, one a platform. Raises PackingError.
    """
    version = publish_modules(repository, _MODULES)
    _put(ANDROID / "mlcc-jvm" / "pom.xml", repository, "mlcc-jvm", version, "pom")
    jar = repository_path(repository, "mlcc-jvm", version, "jar")
    write(parts, jar)
    return jar


def publish_modules(repository: Path, names: Sequence[str]) -> str:
    """Copy modules that Maven built, and their parent POM; return their version."""
    version = str(ET.parse(ANDROID / "pom.xml").findtext("version", namespaces=SPACE))
    _put(ANDROID / "pom.xml", repository, "mlcc-parent", version, "pom")
    for name in names:
        built = ANDROID / name / "target" / f"{name}-{version}.jar"
        if not built.exists():
            raise PackingError(f"{built} is not there; type: mvn -f mobile/android package")
        _put(ANDROID / name / "pom.xml", repository, name, version, "pom")
        _put(built, repository, name, version, "jar")
    return version


def repository_path(repository: Path, name: str, version: str, kind: str) -> Path:
    """The path of a module's file in a Maven repository."""
    folder = repository / "dev" / "mlcc" / name / version
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{version}.{kind}"


def write(parts: Sequence[Path], jar: Path) -> None:
    """Write the JAR of native parts. PackingError for none, or two of one platform."""
    found = {}
    for folder in parts:
        if not (folder / LIST).exists():
            raise PackingError(f"{folder} has no {LIST}; type: package.py parts {folder}")
        platform = json.loads((folder / LIST).read_text(encoding="utf-8"))["platform"]
        if found.setdefault(platform, folder) != folder:
            raise PackingError(f"{folder} and {found[platform]} are both for {platform}")
    if not found:
        raise PackingError("there are no native parts; type: package.py parts FOLDER")
    partial = jar.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        add(archive, "META-INF/LICENSE", (ROOT / "LICENSE").read_bytes())
        add(archive, f"{NATIVE}/platforms", "\n".join(sorted(found)).encode())
        for platform, folder in sorted(found.items()):
            add_folder(archive, f"{NATIVE}/{platform}", folder)
    partial.replace(jar)


def add_folder(archive: zipfile.ZipFile, name: str, folder: Path) -> None:
    """Add all files below a folder, sorted."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            add(archive, f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file reproducibly: fixed date and compression."""
    archive.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED, 9)


def _put(file: Path, repository: Path, name: str, version: str, kind: str) -> None:
    shutil.copyfile(file, repository_path(repository, name, version, kind))
