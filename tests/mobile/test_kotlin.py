"""The Kotlin package, built and tested by Maven: also against the C library and the demo model."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import kotlin_tokenizers
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


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ANDROID)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


def properties(library: Library, model: Path, cases: Path) -> list[str]:
    """Where the JVM finds what is not Java's."""
    return [
        f"-Dmlcc.demo={model}",
        f"-Dmlcc.libraries={library.folder}",
        f"-Dmlcc.python.path={os.pathsep.join(SITE)}",
        f"-Dmlcc.tokenizer.cases={cases}",
        "-DargLine=-Xcheck:jni",
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
def test_maven_builds_and_tests_it(
    jni: Library, compiled_demo: Callable[[str, str], Path], tmp_path: Path
) -> None:
    for report in ANDROID.glob("*/target/surefire-reports/*"):
        report.unlink()
    model, cases, trained = (
        compiled_demo("q4", "cpu"),
        tmp_path / "cases.json",
        tmp_path / "trained",
    )
    kotlin_tokenizers.train(trained)
    kotlin_tokenizers.write(cases, [model, trained])
    run([*MAVEN, *properties(jni, model, cases), "test"])
    ran = results()
    wanted = {
        "ApiTest",
        "CallsTest",
        "ModelStoreTest",
        "DemoTest",
        "DjlTokenizerTest",
        "OpenAITest",
    }
    assert wanted <= set(ran)
    assert all(tests > 0 and skipped == 0 for tests, skipped in ran.values()), ran
    # What -Xcheck:jni says of our own calls; DJL brings JNA, which has its faults.
    said = [path.read_text() for path in ANDROID.glob("mlcc-core/target/surefire-reports/*stream")]
    assert not [text for text in said if "JNI" in text], said

    chat = runpy.run_path(str(ANDROID / "chat.py"))["java"]
    assert "42" in run(chat(jni.folder, model, "What is 17 + 25?"))
    with pytest.raises(AssertionError, match=r"mlcc\.json"):
        run(chat(jni.folder, tmp_path))


def undocumented(path: Path) -> list[str]:
    """Public declarations of a file without a comment of their own or a line of the class's."""
    text = path.read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    properties = re.findall(r" \* @property (\w+) ", text)
    found = []
    for number, line in enumerate(lines):
        if not line.startswith("public ") or line.startswith("public companion object"):
            continue
        if any(re.match(rf"public va[lr] {name}:", line) for name in properties):
            continue
        before = number - 1
        while lines[before].startswith("@"):
            before -= 1
        if not lines[before].endswith("*/"):
            found.append(f"{path.name}:{number + 1} {line}")
    return found


def test_what_is_public_is_documented() -> None:
    files = sorted(ANDROID.glob("mlcc-*/src/main/kotlin/**/*.kt"))
    assert len(files) > 20
    assert [line for path in files for line in undocumented(path)] == []
