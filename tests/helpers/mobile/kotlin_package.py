"""The Kotlin package, built and tested by Maven once per test run, and its JARs."""

from __future__ import annotations

import io
import os
import runpy
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.helpers import shared
from tests.helpers.mobile import kotlin_tokenizers
from tests.helpers.mobile.c_library import SITE, Library

ROOT = Path(__file__).parents[3]
ANDROID = ROOT / "mobile" / "android"
MAVEN = ["mvn", "--batch-mode", "--quiet", "--no-transfer-progress"]
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that ends before optimizing its code would pay."""
CLASSES = ("classes", "test-classes")
"""Folders of what Kotlin's compiler makes, below each module's target/."""
NOT_COMPILED = ["-Dkotlin.compile.phase=none", "-Dkotlin.test.compile.phase=none"]
SECONDS = 900
"""Bounds a Maven that waits for a network; compiling and testing take about two minutes."""


@dataclass(frozen=True)
class Package:
    """The built files: JARs as an app gets them, the tests' own classes, reports."""

    folder: Path

    @property
    def repository(self) -> Path:
        """A Maven repository with all that is ours."""
        return self.folder / "repository"

    @property
    def class_path(self) -> str:
        """The class path of the tests' relay: JARs, and none of this checkout's folders."""
        jars = [str(path) for path in self.repository.rglob("*.jar")]
        return os.pathsep.join([str(self.folder / "test-classes"), *jars, f"{self.folder}/lib/*"])

    def relay(self, cache: Path) -> list[str]:
        """The command of the tests' relay. cache: where it unpacks the native parts."""
        options = [*SHORT_LIVED.split(), f"-Dmlcc.cache={cache}", "-cp", self.class_path]
        return ["java", *options, "dev.mlcc.jvm.RelayKt"]

    @property
    def results(self) -> dict[str, tuple[int, int]]:
        """By test class: how many ran, how many of them were skipped."""
        found = {}
        for report in (self.folder / "reports").rglob("TEST-*.xml"):
            suite = ET.parse(report).getroot()
            name = suite.attrib["name"].rpartition(".")[2]
            found[name] = (int(suite.attrib["tests"]), int(suite.attrib["skipped"]))
        return found

    @property
    def jni_warnings(self) -> list[str]:
        """Warnings of -Xcheck:jni about our own calls; those about JNA, which DJL uses, are left
        out."""
        return [
            path.read_text() for path in (self.folder / "reports" / "mlcc-core").glob("*stream")
        ]


def packing(name: str) -> Any:
    """A module of mobile/android/packing."""
    if str(ANDROID) not in sys.path:
        sys.path.insert(0, str(ANDROID))
    return __import__(f"packing.{name}", fromlist=[name])


def built(folder: Path, library: Library, model: Path) -> Package:
    """In a folder that several processes may share. model: a compiled demo."""
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        if not (folder / "repository").exists():
            _build(folder, library, model)
    return Package(folder)


def _build(folder: Path, library: Library, model: Path) -> None:
    for old in ANDROID.glob("*/target/surefire-reports"):
        shutil.rmtree(old)
    run([sys.executable, str(ANDROID / "jni" / "build.py"), str(library.folder)])
    cases, trained = folder / "cases.json", folder / "trained"
    kotlin_tokenizers.train(trained)
    kotlin_tokenizers.write(cases, [model, trained])
    made_of = _sources()
    kept = shared.load("kotlin-classes.zip", made_of)
    if kept is not None:
        _unpack(kept)
    options = [] if kept is None else NOT_COMPILED
    run([*MAVEN, *_properties(library, model, cases), *options, "package"])
    if kept is None:
        shared.store("kotlin-classes.zip", made_of, _packed())
    parts = folder / "parts"
    packing("parts").make(packing("system").System.at(None), library.folder, parts)
    shutil.copytree(ANDROID / "mlcc-jvm" / "target" / "lib", folder / "lib")
    shutil.copytree(ANDROID / "mlcc-jvm" / "target" / "test-classes", folder / "test-classes")
    for reports in ANDROID.glob("*/target/surefire-reports"):
        shutil.copytree(reports, folder / "reports" / reports.parents[1].name)
    packing("jar").publish([parts], folder / "partial")
    (folder / "partial").rename(folder / "repository")


def _sources() -> list[str | bytes]:
    """All that the classes are made of: files and POMs, by their places, Maven and Java. Every
    version of a library, of Kotlin and of its plugins is in a POM."""
    found = [*ANDROID.glob("*/src/**/*"), *ANDROID.glob("*/pom.xml"), ANDROID / "pom.xml"]
    maven = run(["mvn", "--version"]).splitlines()[0]
    parts: list[str | bytes] = [shared.version_of("javac"), maven]
    for path in sorted(path for path in found if path.is_file()):
        parts += [path.relative_to(ANDROID).as_posix(), path.read_bytes()]
    return parts


def _packed() -> bytes:
    """An archive of the compiled classes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        found = (path for name in CLASSES for path in ANDROID.glob(f"*/target/{name}/**/*"))
        for path in sorted(found):
            archive.write(path, path.relative_to(ANDROID))
    return data.getvalue()


def _unpack(data: bytes) -> None:
    """Replace the compiled classes by those of an archive."""
    for name in CLASSES:
        for old in ANDROID.glob(f"*/target/{name}"):
            shutil.rmtree(old)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(ANDROID)


def run(command: Sequence[str]) -> str:
    """The output of a command, which must succeed."""
    environment = {**os.environ, "MAVEN_OPTS": f"{os.environ.get('MAVEN_OPTS', '')} {SHORT_LIVED}"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, cwd=ANDROID, env=environment
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


def _properties(library: Library, model: Path, cases: Path) -> list[str]:
    """System properties with the paths of native libraries, model and test cases."""
    return [
        f"-Dmlcc.demo={model}",
        f"-Dmlcc.libraries={library.folder}",
        f"-Dmlcc.python.path={os.pathsep.join(SITE)}",
        f"-Dmlcc.tokenizer.cases={cases}",
        f"-DargLine=-Xcheck:jni {SHORT_LIVED}",
    ]


def chat(libraries: Path, model: Path, *question: str) -> list[str]:
    """The command of the sample, as its script has it."""
    command: list[str] = runpy.run_path(str(ANDROID / "chat.py"))["java"](
        libraries, model, *question
    )
    return command
