"""The table of features: outcomes of tests become cells, and a full run checks docs/features.md.

The runs are of pytest itself, over a copy of `conftest.py` and a few small tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.feature_matrix import BEGIN, END, NOTHING, ROWS, TARGETS, Results, merged, parse, render

HERE = Path(__file__).parent
TWO = "weights `f16`, `bf16`"
LLAMA = "Llama 2, 3"


def outcomes(*rows: tuple[str, str, str]) -> Results:
    """Runs on vulkan of claims (part, how, outcome)."""
    results = Results()
    for part, how, outcome in rows:
        results.add(part, "vulkan", how, outcome, "why not" if how == "refused" else "")
    return results


@pytest.mark.parametrize(
    ("rows", "cell"),
    [
        ([], NOTHING),
        ([("f16", "runs", "passed")], NOTHING),  # nothing shows bf16
        ([("f16", "runs", "passed"), ("bf16", "runs", "passed")], "runs"),
        ([("f16", "runs", "passed"), ("bf16", "compiles", "passed")], "compiles"),
        ([("f16", "runs", "passed"), ("bf16", "refused", "passed")], "why not"),
        ([("f16", "runs", "passed"), ("bf16", "runs", "skipped")], None),
        ([("*", "compiles", "passed"), ("f16", "runs", "skipped")], None),
        ([("*", "compiles", "passed"), ("f16", "runs", "failed")], "compiles"),
        ([("*", "runs", "passed"), ("f16", "runs", "failed")], NOTHING),
        ([("*", "runs", "passed"), ("f16", "compiles", "skipped")], "runs"),
        ([("*", "refused", "passed")], "why not"),
    ],
)
def test_a_cell_is_what_all_its_tests_show(
    rows: list[tuple[str, str, str]], cell: str | None
) -> None:
    assert outcomes(*rows).cell(TWO, "vulkan") == cell


def test_what_is_written_is_read_again() -> None:
    texts = ("runs", "compiles", NOTHING, "no driver; install one", "not built yet | see `x`")
    table = {(row, t): texts[i % 5] for i, row in enumerate(ROWS) for t in TARGETS}
    table[LLAMA, "ios"] = texts[4]
    text = render(table)
    assert parse(text) == table
    assert text.count("\n[") == 2  # equal errors share a note
    assert render(parse(text)) == text


def test_unsettled_cells_stay_as_they_were() -> None:
    old = {(LLAMA, "vulkan"): "runs", (TWO, "vulkan"): "runs"}
    table = merged(outcomes(("llama", "runs", "skipped"), ("f16", "runs", "failed")), old)
    assert table[LLAMA, "vulkan"] == "runs" and table[TWO, "vulkan"] == NOTHING


TESTS = """
import os, pytest
@pytest.mark.feature("llama", "vulkan", "runs")
def test_runs():
    if os.environ["OUTCOME"] == "skip":
        pytest.skip("no driver")
    assert os.environ["OUTCOME"] == "pass"
@pytest.mark.feature("*", "webgpu", "refused")
def test_refused(record_property):
    record_property("refusal", "not built yet")
def test_other(): pass
@pytest.mark.long
@pytest.mark.feature("llama", "cuda", "runs")
def test_long():
    assert os.environ["OUTCOME"] == "pass"
@pytest.mark.long
@pytest.mark.feature("llama", "vulkan", "runs")
def test_more(): pass
"""

HYPOTHESIS = """
class settings:
    register_profile = load_profile = staticmethod(lambda *name, **options: None)
"""
"""For the imports of conftest.py: none of these tests has random examples, and Hypothesis takes
half of the start of thirty processes."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A features page with an empty table, and tests."""
    (tmp_path / "tests" / "helpers").mkdir(parents=True)
    needed = ("__init__.py", "conftest.py", "feature_matrix.py", "helpers/__init__.py")
    for name in (*needed, "helpers/needs.py"):
        shutil.copy(HERE / name, tmp_path / "tests" / name)
    shutil.copytree(HERE.parent / "tools", tmp_path / "tools")
    shutil.copy(HERE.parent / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_features.py").write_text(TESTS)
    (tmp_path / "hypothesis.py").write_text(HYPOTHESIS)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "features.md").write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    return tmp_path


def run_tests(project: Path, outcome: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", *arguments]
    environment = {**os.environ, "OUTCOME": outcome, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def write_table(project: Path) -> str:
    """`dev.py matrix`; returns the page."""
    script = project / "tests" / "feature_matrix.py"
    subprocess.run([sys.executable, script], check=True, capture_output=True)
    return (project / "docs" / "features.md").read_text()


@pytest.mark.parametrize("processes", [[], ["-n2"]], ids=["one", "two"])
def test_a_full_run_fails_until_the_page_says_what_it_proved(
    project: Path, processes: list[str]
) -> None:
    code, output = run_tests(project, "pass", *processes)
    assert code == 1 and "type: python3 dev.py matrix" in output and "3 passed" in output
    assert f"{LLAMA}, vulkan: the tests say 'runs'" in output
    page = write_table(project)
    assert page.startswith("before\n") and page.endswith("\nafter\n")
    assert "[1] not built yet" in page
    assert run_tests(project, "pass")[0] == 0
    (project / "docs" / "features.md").write_text(page.replace("| runs |", "| compiles |"))
    code, output = run_tests(project, "pass", *processes)
    assert code == 1 and "the tests say 'runs', features.md 'compiles'" in output


def test_part_of_the_tests_decides_nothing(project: Path) -> None:
    for part in (["-k", "other"], ["tests/test_features.py"]):
        assert run_tests(project, "pass", *part)[0] == 0
    assert run_tests(project, "fail", "-x")[0] == 1
    command = [sys.executable, project / "tests" / "feature_matrix.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "python3 dev.py test" in done.stderr


def test_a_skipped_test_neither_proves_nor_disproves(project: Path) -> None:
    run_tests(project, "skip")
    assert f"| {LLAMA} | – | – |" in write_table(project)
    run_tests(project, "pass")
    page = write_table(project)
    assert f"| {LLAMA} | – | runs |" in page
    assert run_tests(project, "skip")[0] == 0 and write_table(project) == page
    run_tests(project, "fail")
    assert f"| {LLAMA} | – | – |" in write_table(project)


@pytest.mark.parametrize("processes", [[], ["-n1"]], ids=["one", "two"])
def test_the_long_tail_settles_what_it_alone_proves(project: Path, processes: list[str]) -> None:
    """Without --long such a cell is neither compared nor rewritten; others are."""
    code, output = run_tests(project, "pass", "--long", *processes)
    assert code == 1 and f"{LLAMA}, cuda: the tests say 'runs'" in output
    page = write_table(project)
    assert f"| {LLAMA} | – | runs | runs |" in page
    assert run_tests(project, "pass", *processes)[0] == 0 and write_table(project) == page
    run_tests(project, "fail", *processes)
    assert f"| {LLAMA} | – | – | runs |" in write_table(project)
    run_tests(project, "fail", "--long", *processes)
    assert f"| {LLAMA} | – | – | – |" in write_table(project)


def test_a_misspelt_feature_is_refused(project: Path) -> None:
    file = project / "tests" / "test_features.py"
    file.write_text(TESTS.replace('"llama"', '"lama"'))
    code, output = run_tests(project, "pass")
    assert code != 0 and "lama" in output
