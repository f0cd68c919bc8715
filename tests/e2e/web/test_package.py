"""Each file of web/tests is a test here, run by vitest: in Node, and some in a real Chromium."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import local_index
from tests.helpers.needs import absent, require
from tests.helpers.web_package import WEB, environment, node

FILES = sorted(path.relative_to(WEB).as_posix() for path in (WEB / "tests").glob("**/*.test.ts"))
IN_CHROMIUM = "/tools/chromium.js'"
OVER_THE_DEMO = "/demo.js'"
OVER_A_SMALL_MODEL = "/device_model.js'"
OVER_A_SERVER = "process.env['MLCC_SERVER']"
WITH_THE_WHEEL = "process.env['MLCC_NOTEBOOK_WHEEL']"
PROVES_THE_PAGE = pytest.mark.feature("page", "cpu", "runs")
TIMEOUT_S = 900


def test_there_are_files() -> None:
    assert FILES, "web/tests holds no *.test.ts"


def shown(file: str) -> Any:
    """A file of tests, and the features that it proves."""
    is_served = OVER_A_SERVER in (WEB / file).read_text(encoding="utf-8")
    return pytest.param(file, marks=[PROVES_THE_PAGE] if is_served else [])


@pytest.mark.parametrize("file", map(shown, FILES))
def test_vitest(file: str, web: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    imports, report = (WEB / file).read_text(encoding="utf-8"), tmp_path / "report.json"
    variables = environment()
    if request.config.getoption("--long"):
        variables["MLCC_LONG"] = "1"
    if any(module in imports for module in (IN_CHROMIUM, OVER_THE_DEMO, OVER_A_SMALL_MODEL)):
        require("chromium")  # or the GPU in software that it brings
    if OVER_THE_DEMO in imports:
        variables |= {"MLCC_DEMO_WEBGPU": str(request.getfixturevalue("demo_webgpu"))}
    if OVER_A_SMALL_MODEL in imports:
        source, compiled = request.getfixturevalue("small_webgpu")
        variables |= {"MLCC_DEMO_SOURCE": str(source), "MLCC_DEMO_WEBGPU": str(compiled)}
    if OVER_A_SERVER in imports:
        variables |= {"MLCC_SERVER": request.getfixturevalue("demo_server")}
    if WITH_THE_WHEEL in imports:
        wheel = local_index.make(tmp_path, {**os.environ, "MLCC_NO_NATIVE": "1"})
        assert wheel.name.endswith("-py3-none-any.whl")
        variables |= {"MLCC_NOTEBOOK_WHEEL": str(wheel)}
    command = [node(), "node_modules/vitest/vitest.mjs", "run", file]
    done = subprocess.run(
        [*command, "--reporter=default", "--reporter=json", f"--outputFile.json={report}"],
        cwd=web,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(report.read_text())
    assert counts["numTotalTests"] > 0, f"{file} holds no test"
    if counts["numPassedTests"] < counts["numTotalTests"]:
        absent(f"{file}: some tests were skipped, see their titles in its source")
