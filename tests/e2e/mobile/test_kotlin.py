"""The Kotlin package, built and tested by Maven: also against the C library and the demo model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.mobile.c_library import Library
from tests.helpers.mobile.kotlin_package import ANDROID, Package, chat, run

CLASSES = {
    "AndroidImageDecoderTest",
    "ApiTest",
    "ChatTest",
    "CallsTest",
    "DemoTest",
    "DjlTokenizerTest",
    "EngineLifecycleTest",
    "ForeignLibraryTest",
    "MlccAndroidTest",
    "ModelStoreTest",
    "NativePartsTest",
    "OpenAITest",
}


@pytest.mark.needs("maven")
def test_maven_builds_and_tests_it(kotlin_package: Package) -> None:
    ran = kotlin_package.results
    assert set(ran) >= CLASSES
    assert all(tests > 0 and skipped == 0 for tests, skipped in ran.values()), ran
    assert not [text for text in kotlin_package.jni_warnings if "JNI" in text], (
        kotlin_package.jni_warnings
    )


@pytest.mark.needs("maven")
def test_the_sample_answers(
    kotlin_package: Package,
    c_library: Library,
    compiled_demo: Callable[[str, str], Path],
    tmp_path: Path,
) -> None:
    model = compiled_demo("q4", "cpu")
    assert "42" in run(chat(c_library.folder, model, "What is 17 + 25?"))
    with pytest.raises(AssertionError, match=r"mlcc\.json"):
        run(chat(c_library.folder, tmp_path))


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
