"""The servers that run now: who is found, and that nobody else's process is taken for one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.commands.running import announced, servers

URL = "http://127.0.0.1:1"
ANNOUNCE = "import sys; from mlcc.commands.running import announced\n"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "mlcc" / "servers"


def test_one_is_found_while_it_runs(state: Path) -> None:
    with announced(URL):
        assert [(each.url, each.pid) for each in servers()] == [(URL, os.getpid())]
    assert servers() == [] and not list(state.iterdir())


def test_a_killed_ones_file_is_put_away(state: Path) -> None:
    code = f"{ANNOUNCE}with announced({URL!r}): print('here', flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout and process.stdout.readline() == b"here\n"
        assert [each.pid for each in servers()] == [process.pid]
        process.kill()
    assert servers() == [] and not list(state.iterdir())


def test_stop_ends_no_process_that_got_a_dead_ones_number(state: Path) -> None:
    state.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (state / f"{other.pid}.json").write_text(json.dumps({"url": URL}))
        result = CliRunner().invoke(cli, ["stop"])
        assert "no server runs here" in str(result.exception)
        assert other.poll() is None and not list(state.iterdir())
        other.communicate(b"\n")
        assert other.returncode == 0
