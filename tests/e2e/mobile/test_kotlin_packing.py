"""The native parts packed by `mobile/android/package.py`, and its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.mobile.kotlin_package import ANDROID, Package, packing, run

PACKAGE = ANDROID / "package.py"
MACHINES = {"x86_64": 62, "aarch64": 183}
ABIS = {"arm64-v8a": "aarch64", "x86_64": "x86_64"}


def library(path: Path, cpu: str) -> None:
    """The head of a shared library, of which packing reads no more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + b"\x03\0" + bytes([MACHINES[cpu], 0])
    path.write_bytes(head + b"\0GLIBC_2.17\0" + bytes(100))


def android(folder: Path) -> Path:
    """A folder like the output of mobile/c/android.py, as far as packing reads it."""
    for abi, cpu in ABIS.items():
        for name in ("libmlcc", "libmlcc_executor", "libmlcc_jni", "libpython3.11"):
            library(folder / abi / f"{name}.so", cpu)
        library(folder / abi / "lib-dynload" / "math.so", cpu)
    (folder / "licences").mkdir()
    (folder / "licences" / "mlcc.txt").write_text("Apache")
    for name in ("mlcc.zip", "python.zip"):
        (folder / name).write_bytes(name.encode())
    return folder


def refused(*arguments: str | Path) -> str:
    command = [sys.executable, str(PACKAGE), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done
    assert done.stderr.startswith("mobile/android: "), done.stderr
    return done.stderr


def test_an_aar_has_the_native_parts_of_each_abi(tmp_path: Path) -> None:
    aar = packing("aar")
    native = android(tmp_path / "native")
    classes, out = tmp_path / "classes.jar", tmp_path / "mlcc.aar"
    classes.write_bytes(b"classes")
    assert aar.find_abis(native) == list(ABIS)
    aar.write(classes, native, list(ABIS), out)
    with zipfile.ZipFile(out) as archive:
        names = set(archive.namelist())
        parts = json.loads(archive.read("assets/mlcc/arm64-v8a/parts.json"))
        for part in parts["files"]:  # each is where Kotlin looks for it
            assert {f"assets/mlcc/arm64-v8a/{part['path']}", f"assets/mlcc/{part['path']}"} & names
        assert archive.read("assets/mlcc/platforms").decode().split() == list(ABIS)
        assert archive.read("classes.jar") == b"classes"
        assert b"minSdkVersion" in archive.read("AndroidManifest.xml")
        assert b"dev.mlcc.jni.Jni" in archive.read("proguard.txt")
    assert {f"jni/{abi}/libmlcc_jni.so" for abi in ABIS} <= names
    assert {"R.txt", "LICENSE", "assets/mlcc/licences/mlcc.txt"} <= names
    assert parts["libraries"] is None and len(parts["files"]) == 3
    first = out.read_bytes()
    aar.write(classes, native, list(ABIS), out)
    assert out.read_bytes() == first


def test_an_aar_without_native_parts_is_refused(tmp_path: Path) -> None:
    message = refused("aar", "--native", tmp_path / "none", "--out", tmp_path / "out")
    assert "ANDROID_NDK_HOME" in message and "--without-native" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lost", ["mlcc.zip", "x86_64/libmlcc.so", "arm64-v8a/libpython3.11.so"])
def test_an_aar_with_half_its_parts_is_refused(tmp_path: Path, lost: str) -> None:
    native = android(tmp_path / "native")
    (native / lost).unlink()
    assert Path(lost).name.partition("3.11")[0] in refused("aar", "--native", native)


def test_a_library_of_another_cpu_is_refused(tmp_path: Path) -> None:
    native = android(tmp_path / "native")
    library(native / "arm64-v8a" / "libmlcc.so", "x86_64")
    assert "is for x86_64, not for aarch64" in refused("aar", "--native", native)
    (native / "arm64-v8a" / "libmlcc.so").write_bytes(b"text")
    assert "is no library" in refused("aar", "--native", native)


def test_a_jar_of_no_parts_or_the_same_twice_is_refused(tmp_path: Path) -> None:
    jar, parts = packing("jar"), packing("parts")
    for name in ("one", "two"):
        library(tmp_path / name / "lib" / "libmlcc.so", "aarch64")
        parts.write_list(tmp_path / name, "linux-aarch64", [])
    with pytest.raises(SystemExit, match="both for linux-aarch64"):
        jar.write([tmp_path / "one", tmp_path / "two"], tmp_path / "mlcc.jar")
    with pytest.raises(SystemExit, match="no native parts"):
        jar.write([], tmp_path / "mlcc.jar")
    with pytest.raises(SystemExit, match=r"has no parts\.json"):
        jar.write([tmp_path], tmp_path / "mlcc.jar")
    assert not (tmp_path / "mlcc.jar").exists()
    jar.write([tmp_path / "two"], tmp_path / "mlcc.jar")
    with zipfile.ZipFile(tmp_path / "mlcc.jar") as archive:
        assert archive.read("dev/mlcc/native/platforms") == b"linux-aarch64"


@pytest.mark.needs("maven")
def test_the_jar_has_python_and_licences_and_no_path_of_this_machine(
    kotlin_package: Package,
) -> None:
    (jar,) = kotlin_package.repository.rglob("mlcc-jvm-*.jar")
    with zipfile.ZipFile(jar) as archive:
        files = {name.split("/", 4)[-1]: archive.read(name) for name in archive.namelist()}
    listed: Any = json.loads(files["parts.json"])
    assert listed["python"] == sys.version.split()[0] and listed["glibc"]
    assert listed["first"][-1].startswith("libpython")
    licences = {name for name in files if name.startswith("licenses/")}
    assert licences >= {
        f"licenses/{part}.txt"
        for part in ("mlcc", "python", "apache-tvm", "apache-tvm-ffi", "jinja2", "markupsafe")
    }
    assert b"PYTHON SOFTWARE FOUNDATION LICENSE" in files["licenses/python.txt"]
    prefix = os.fsencode(sys.base_prefix) + b"/lib\0"
    assert not [name for name, data in files.items() if name.startswith("lib/") and prefix in data]


CONSUMER = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>app</artifactId><version>1</version>
  <packaging>pom</packaging>
  <repositories><repository><id>mlcc</id><url>{url}</url></repository></repositories>
  <dependencies><dependency>
    <groupId>dev.mlcc</groupId><artifactId>mlcc-jvm</artifactId><version>0.1.0</version>
  </dependency></dependencies>
</project>"""


@pytest.mark.needs("maven")
def test_one_dependency_brings_all(kotlin_package: Package, tmp_path: Path) -> None:
    pom, lib, home = tmp_path / "pom.xml", tmp_path / "lib", Path.home() / ".m2/repository/dev/mlcc"
    before = set(home.rglob("*")) if home.exists() else set()
    pom.write_text(CONSUMER.format(url=kotlin_package.repository.as_uri()))
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    try:
        run(["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={lib}"])
    finally:
        for path in sorted(set(home.rglob("*")) - before, reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    names = {path.name.rpartition("-")[0] for path in lib.iterdir()}
    assert names >= {
        "mlcc-core",
        "mlcc-djl",
        "mlcc-jvm",
        "kotlinx-coroutines-core-jvm",
        "tokenizers",
    }
