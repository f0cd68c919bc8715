"""Each file of web/tests is a test here, run by vitest: in Node, and some in a real Chromium."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from mlcc.artifact.schema import CHUNK_BYTES
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.compile import Progress, compile_model
from mlcc_compiler.options import Options
from mlcc_targets import Choices, get_target
from tests.helpers import local_index, shared
from tests.helpers.needs import absent, require
from tests.helpers.web_package import WEB, environment, node
from tests.runtime.commands.tiny_checkpoint import write_checkpoint

FILES = sorted(path.relative_to(WEB).as_posix() for path in (WEB / "tests").glob("**/*.test.ts"))
IN_CHROMIUM = "/tools/chromium.js'"
ON_THE_PAGE = "from './browser.js'"
OVER_THE_DEMO = "/demo.js'"
OVER_A_SMALL_MODEL = "/device_model.js'"
OVER_ANY_MODEL = "/any_model.js'"
OVER_A_SERVER = "process.env['MLCC_SERVER']"
WITH_MATRICES = "process.env['MLCC_SUBGROUP_MATRICES']"
WITH_THE_WHEEL = "process.env['MLCC_NOTEBOOK_WHEEL']"
PROVES_THE_PAGE = pytest.mark.feature("page", "cpu", "runs")
TIMEOUT_S = 900


def test_there_are_files() -> None:
    assert FILES, "web/tests holds no *.test.ts"


def test_chunks_have_the_size_that_the_compiler_hashes() -> None:
    """web/tests/model has smaller ones."""
    assert CHUNK_BYTES == 8 << 20
    plan = (WEB / "src" / "plan.ts").read_text(encoding="utf-8")
    assert "\nexport const CHUNK_BYTES = 8 << 20;\n" in plan


def shown(file: str) -> Any:
    """A file of tests, and the features that it proves."""
    is_served = OVER_A_SERVER in (WEB / file).read_text(encoding="utf-8")
    return pytest.param(file, marks=[PROVES_THE_PAGE] if is_served else [])


def needed(file: str) -> frozenset[str]:
    """Which of the texts above are in a file: what it imports or reads."""
    text = (WEB / file).read_text(encoding="utf-8")
    every = (IN_CHROMIUM, ON_THE_PAGE, OVER_THE_DEMO, OVER_A_SMALL_MODEL, OVER_ANY_MODEL)
    more = (OVER_A_SERVER, WITH_MATRICES, WITH_THE_WHEEL)
    return frozenset(each for each in (*every, *more) if each in text)


def beside(file: str) -> list[str]:
    """The files of one run of vitest. Those that need nothing share one; those of the page share
    one with its bundle and Chromium, and those over Node's GPU one with the kernels that its driver
    compiled, which would cost as much as the tests of a file do."""
    needs = needed(file)
    for one in (ON_THE_PAGE, OVER_A_SMALL_MODEL):
        if one in needs:
            return [each for each in FILES if one in needed(each)]
    return [file] if needs else [each for each in FILES if not needed(each)]


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    """What vitest reported, by file."""
    return {}


@pytest.mark.parametrize("file", map(shown, FILES))
def test_vitest(
    file: str,
    web: Path,
    tmp_path: Path,
    reports: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    needs, variables = needed(file), environment()
    if request.config.getoption("--long"):
        variables["MLCC_LONG"] = "1"
    if needs & {IN_CHROMIUM, ON_THE_PAGE, OVER_THE_DEMO, OVER_A_SMALL_MODEL, OVER_ANY_MODEL}:
        require("chromium")  # or the GPU in software that it brings
    if OVER_THE_DEMO in needs:
        variables |= {"MLCC_DEMO_WEBGPU": str(request.getfixturevalue("demo_webgpu"))}
    if needs & {OVER_A_SMALL_MODEL, OVER_ANY_MODEL}:
        source, compiled = request.getfixturevalue("small_webgpu")
        variables |= {"MLCC_DEMO_SOURCE": str(source), "MLCC_DEMO_WEBGPU": str(compiled)}
    if OVER_A_SERVER in needs:
        variables |= {"MLCC_SERVER": request.getfixturevalue("demo_server")}
    if WITH_MATRICES in needs:
        variables |= {"MLCC_SUBGROUP_MATRICES": str(with_matrices(tmp_path))}
    if WITH_THE_WHEEL in needs:
        wheel = local_index.make(tmp_path, {**os.environ, "MLCC_NO_NATIVE": "1"})
        assert wheel.name.endswith("-py3-none-any.whl")
        variables |= {"MLCC_NOTEBOOK_WHEEL": str(wheel)}
    if file not in reports:
        with kept_bundle(tmp_path) if ON_THE_PAGE in needs else nullcontext({}) as more:
            together = beside(file)
            reports |= vitest(together, web, variables | more, tmp_path / "report.json")
    report = reports[file]
    tests = report["assertionResults"]
    faults = [text for test in tests for text in test["failureMessages"]]
    assert report["status"] == "passed", "\n".join([report["message"], *faults])
    assert tests, f"{file} holds no test"
    if any(test["status"] != "passed" for test in tests):
        absent(f"{file}: some tests were skipped, see their titles in its source")


def with_matrices(folder: Path) -> Path:
    """A tiny model compiled for Chromium's subgroup matrices of 8 x 8."""
    checkpoint = Checkpoint.open(write_checkpoint(folder / "checkpoint"))
    row = get_target("webgpu", Choices(subgroup_matrices=8))
    options = Options(quant="q4", context=64, max_batch=2, max_step_tokens=32)
    return compile_model(checkpoint, row, folder / "matrices", options, Progress())


@contextmanager
def kept_bundle(folder: Path) -> Iterator[dict[str, str]]:
    """A variable for `tests/page/browser.ts`: the page bundled with its scripted engines, kept by
    all that it is made of. What packages hold follows from the lock file."""
    bundle = folder / "bundle"
    made_of = [shared.version_of(node()), *page_sources()]
    if (data := shared.load("page-bundle.zip", made_of)) is not None:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(bundle)
    yield {"MLCC_PAGE_BUNDLE": str(bundle)}
    if data is None and bundle.exists():
        packed = shutil.make_archive(str(folder / "packed"), "zip", bundle)
        shared.store("page-bundle.zip", made_of, Path(packed).read_bytes())


def page_sources() -> list[str | bytes]:
    """Files that may be bundled or configure the bundler, by their places."""
    folders = [WEB / name for name in ("page", "src", "tools", "tests/page/harness")]
    found = [*WEB.glob("*.*"), *(path for folder in folders for path in folder.rglob("*"))]
    found.append(WEB / "tests/page/browser.ts")
    files = sorted(path for path in found if path.is_file() and path.suffix != ".pyc")
    return [
        part for path in files for part in (path.relative_to(WEB).as_posix(), path.read_bytes())
    ]


def vitest(files: list[str], web: Path, variables: dict[str, str], report: Path) -> dict[str, Any]:
    """Run files, several in one process after one another, and return the report of each."""
    command = [node(), "node_modules/vitest/vitest.mjs", "run", *files, "--reporter=default"]
    if len(files) > 1:
        command += ["--no-isolate", "--no-file-parallelism"]
        variables = {**variables, "MLCC_FILES_TOGETHER": str(len(files))}
    done = subprocess.run(
        [*command, "--reporter=json", f"--outputFile.json={report}"],
        cwd=web,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    found = json.loads(report.read_text()) if report.exists() else {"testResults": []}
    by_file = {
        Path(each["name"]).relative_to(web).as_posix(): each for each in found["testResults"]
    }
    assert set(by_file) == set(files), done.stdout + done.stderr
    failed = any(each["status"] != "passed" for each in by_file.values())
    assert failed or done.returncode == 0, done.stdout + done.stderr
    return by_file
