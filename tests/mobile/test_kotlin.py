"""The Kotlin package, built and tested by Maven: also against the C library and the demo model."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from c_library import SITE, Library
from filelock import FileLock

ROOT = Path(__file__).parents[2]
ANDROID = ROOT / "mobile" / "android"
MAVEN = ["mvn", "--batch-mode", "--quiet", "--no-transfer-progress"]
SECONDS = 900
"""Bounds a Maven that waits for a network; compiling and testing take about one minute."""


@pytest.fixture(scope="session")
def jni(c_library: Library) -> Library:
    """The C library with JNI's beside it."""
    with FileLock(c_library.folder / "jni.lock"):
        if not (c_library.folder / "libmlcc_jni.so").exists():
            run([sys.executable, str(ANDROID / "jni" / "build.py"), str(c_library.folder)])
    return c_library


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ANDROID)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]


def properties(library: Library, model: Path) -> list[str]:
    """Where the JVM finds what is not Java's."""
    return [
        f"-Dmlcc.demo={model}",
        f"-Dmlcc.libraries={library.folder}",
        f"-Dmlcc.python.path={os.pathsep.join(SITE)}",
    ]


def results() -> dict[str, tuple[int, int]]:
    """By test class: how many ran, how many of them were skipped."""
    found = {}
    for report in ANDROID.glob("*/target/surefire-reports/TEST-*.xml"):
        suite = ET.parse(report).getroot()
        name = suite.attrib["name"].rpartition(".")[2]
        found[name] = (int(suite.attrib["tests"]), int(suite.attrib["skipped"]))
    return found


@pytest.mark.needs("maven")
def test_maven_builds_and_tests_it(jni: Library, compiled_demo: Callable[[str, str], Path]) -> None:
    for report in ANDROID.glob("*/target/surefire-reports/TEST-*.xml"):
        report.unlink()
    run([*MAVEN, *properties(jni, compiled_demo("q4", "cpu")), "test"])
    ran = results()
    assert {"ApiTest", "CallsTest", "ModelStoreTest", "DemoTest"} <= set(ran)
    assert all(tests > 0 and skipped == 0 for tests, skipped in ran.values()), ran
