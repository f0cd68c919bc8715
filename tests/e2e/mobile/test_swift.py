"""The Swift package: its own tests against the C library and the demo model, and its programs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.mobile.swift_package import BUILD, SWIFT, Package

pytestmark = pytest.mark.needs("swift")
ALL_PASSED = re.compile(r"Executed (\d+) tests, with 0 failures|Test run with (\d+) tests passed")


def test_its_own_tests_pass(
    swift_package: Package, compiled_demo: Callable[[str, str], Path]
) -> None:
    model = compiled_demo("q4", "cpu")
    said = swift_package.swift("test", "--skip-build", folders=[model], MLCC_DEMO=str(model))
    xctest, testing = (
        max(int(found[at] or 0) for found in ALL_PASSED.findall(said)) for at in (0, 1)
    )
    assert xctest >= 17 and testing >= 20, said
    assert "skipped" not in said, said


def test_the_chat_answers_and_names_a_missing_model(
    swift_package: Package, compiled_demo: Callable[[str, str], Path], tmp_path: Path
) -> None:
    model = compiled_demo("q4", "cpu")

    def chat(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = swift_package.program("mlcc-chat", *words, folders=[model, tmp_path])
        environment = BUILD["environment"]()
        return subprocess.run(command, capture_output=True, text=True, env=environment, input=given)

    assert chat(str(model), "What is 17 + 25?").stdout == "17 + 25 = 42\n"
    talk = chat(str(model), given="What is 17 + 25?\nWhat is 3 + 4?\n")
    assert talk.stdout == "> 17 + 25 = 42\n> 3 + 4 = 7\n> \n", talk
    refused = chat(str(tmp_path), "hi")
    assert refused.returncode == 1 and "mlcc.json" in refused.stderr, refused
    assert chat().returncode == 2


def undocumented(path: Path) -> list[str]:
    """Public declarations of a file without a documentation comment."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        f"{path.name}:{number} {line}"
        for number, line in enumerate(lines, 1)
        if re.match(r"public (?!extension)|case \w+\(", line)
        and "///" not in lines[number - 2]
        and not (line.startswith("case") and ":" in line)
    ]


def test_what_is_public_is_documented() -> None:
    files = sorted((SWIFT / "Sources" / "Mlcc").rglob("*.swift"))
    assert len(files) > 12
    assert [line for path in files for line in undocumented(path)] == []
