"""Each file of web/tests is a test here, run by vitest: in Node, and some in a real Chromium."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from needs import absent
from web_package import WEB, environment, node

FILES = sorted(path.relative_to(WEB).as_posix() for path in (WEB / "tests").glob("**/*.test.ts"))
TIMEOUT_S = 900


def test_there_are_files() -> None:
    assert FILES, "web/tests holds no *.test.ts"


@pytest.mark.parametrize("file", FILES)
def test_vitest(file: str, web: Path, demo_webgpu: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [node(), "node_modules/vitest/vitest.mjs", "run", file]
    done = subprocess.run(
        [*command, "--reporter=default", "--reporter=json", f"--outputFile.json={report}"],
        cwd=web,
        env={**environment(), "MLCC_DEMO_WEBGPU": str(demo_webgpu)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(report.read_text())
    assert counts["numTotalTests"] > 0, f"{file} holds no test"
    if counts["numPassedTests"] < counts["numTotalTests"]:
        absent(f"{file}: some tests were skipped, see their titles in its source")
