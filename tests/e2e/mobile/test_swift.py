"""The Swift package: its own tests against the C library and the demo model, and its programs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.e2e.conformance.helpers.encoders import make
from tests.helpers.mobile.swift_package import BUILD, SWIFT, Package, run
from tests.runtime.commands.test_commands import serving

pytestmark = pytest.mark.needs("swift")
CYCLES, MOST_GROWTH = 1000, 4 << 20
"""Loads, and growth of resident bytes from the 300th to the last: less than 6 KB a load."""
ALL_PASSED = re.compile(
    r"Executed (\d+) tests, with (?:\d+ tests skipped and )?0 failures"
    r"|Test run with (\d+) tests passed"
)


def compiled_encoders(folder: Path) -> dict[str, Path]:
    """The encoders of the conformance vectors, by the variables that name them."""
    found = {}
    for topic, name in (("embeddings", "MLCC_ENCODER"), ("rerank", "MLCC_RERANKER")):
        found[name] = folder / f"{topic}-cpu"
        source = Checkpoint.open(make(topic, folder))
        compile_model(
            source, get_target("cpu", Choices()), found[name], Options(quant="f32"), Progress()
        )
    return found


@pytest.mark.long
def test_its_own_tests_pass(
    swift_package: Package, compiled_demo: Callable[[str, str], Path], tmp_path: Path
) -> None:
    model, encoders = compiled_demo("q4", "cpu"), compiled_encoders(tmp_path)
    with serving(model) as (_, port, _):
        variables = {"MLCC_DEMO": str(model), "MLCC_SERVER": f"http://127.0.0.1:{port}"}
        variables |= {name: str(folder) for name, folder in encoders.items()}
        folders = [model, tmp_path]
        output = swift_package.swift("test", folders=folders, **variables)
    check_counts(output)
    assert "skipped" not in output, output


def check_counts(output: str) -> None:
    """As many tests passed as there are, or were skipped; none failed."""
    xctest, testing = (
        max(int(found[at] or 0) for found in ALL_PASSED.findall(output)) for at in (0, 1)
    )
    assert xctest >= 40 and testing >= 20, output


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


@pytest.mark.long
@pytest.mark.parametrize("sanitizer", ["thread", "address"])
def test_its_own_tests_leave_the_sanitizers_silent(
    swift_package: Package, compiled_demo: Callable[[str, str], Path], sanitizer: str
) -> None:
    """CPython is not built with them, so its leaks are not detected."""
    model = compiled_demo("q4", "cpu")
    output = swift_package.swift(
        "test",
        f"--sanitize={sanitizer}",
        folders=[model],
        scratch=BUILD["SCRATCH"].with_name(f"swift-{sanitizer}"),
        MLCC_DEMO=str(model),
        ASAN_OPTIONS="detect_leaks=0",
    )
    assert "Sanitizer" not in output, output
    check_counts(output)


@pytest.mark.long
def test_loading_and_closing_leaves_no_memory(
    swift_package: Package, compiled_demo: Callable[[str, str], Path]
) -> None:
    model = compiled_demo("q4", "cpu")
    swift_package.swift("build", "-c", "release")
    words = ("cycles", str(model), str(CYCLES))
    command = swift_package.program(
        "mlcc-measure", *words, folders=[model], configuration="release"
    )
    rows = [line.split() for line in run(command, BUILD["environment"]()).splitlines()]
    resident = [int(row[1]) for row in rows if len(row) == 2]
    assert len(resident) == 10 and resident[9] - resident[2] < MOST_GROWTH, resident


def test_what_is_for_apple_only_can_be_parsed(swift_package: Package) -> None:
    """Without Apple's modules nothing more can be checked here."""
    files = [str(SWIFT / "Sample" / "ChatApp.swift")]
    files += map(str, (SWIFT / "Sources" / "Mlcc" / "Apple").glob("*.swift"))
    command = ["swiftc", "-parse", "-swift-version", "6", "-D", "UIKIT", *files]
    run(BUILD["command"](command), BUILD["environment"]())


def undocumented(path: Path) -> list[str]:
    """Public declarations of a file without a documentation comment."""
    found, before = [], ""
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        is_case = re.match(r"case \w+\(", line) and ":" not in line.partition(")")[2]
        if (is_case or re.match(r"public (?!extension)", line)) and not before.startswith("///"):
            found.append(f"{path.name}: {line}")
        if not line.startswith("@"):  # an attribute, between comment and declaration
            before = line
    return found


def test_what_is_public_is_documented() -> None:
    files = sorted((SWIFT / "Sources" / "Mlcc").rglob("*.swift"))
    assert len(files) > 12
    assert [line for path in files for line in undocumented(path)] == []
