"""Programs that are forks behave as started ones: arguments, environment, streams, exit codes,
signals, and processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import util
from pathlib import Path
from typing import Any

import pytest

from tools import forked_programs

PROGRAM = """
import atexit, multiprocessing, os, sys

def child(pipe):
    pipe.send([os.getppid(), "forked_mark" in sys.modules])
    pipe.recv()

if __name__ == "__main__":
    atexit.register(print, "at exit")
    print(sys.argv[1:], os.environ.get("GIVEN"), "forked_mark" in sys.modules)
    print("a warning", file=sys.stderr)
    if sys.argv[1] == "child":
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        made = multiprocessing.get_context("spawn").Process(target=child, args=(theirs,))
        made.start()
        theirs.close()
        print(ours.recv() == [os.getpid(), True])
        ours.close()
        made.join()
        print(made.exitcode)
    if sys.argv[1] == "wait":
        sys.stdout.flush()
        sys.stdin.read()
    sys.exit(3)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(subprocess.Popen, "_execute_child", forked_programs._execute_child)
    monkeypatch.setattr(util, "spawnv_passfds", forked_programs._spawnv_passfds)
    monkeypatch.setitem(sys.modules, "forked_mark", sys)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return [sys.executable, str(path)]


def run(program: list[str], *words: str, **more: Any) -> Any:
    return subprocess.run([*program, *words], capture_output=True, text=True, **more)


def test_a_script_is_a_fork_with_its_own_arguments(program: list[str]) -> None:
    done = run(program, "a", "b", env={**os.environ, "GIVEN": "yes"})
    assert done.stdout == "['a', 'b'] yes True\nat exit\n"
    assert (done.stderr, done.returncode) == ("a warning\n", 3)


def test_its_processes_are_forks_that_end_with_it(program: list[str]) -> None:
    done = run(program, "child")
    assert done.stdout == "['child'] None True\nTrue\n1\nat exit\n"
    assert "EOFError" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(program: list[str], number: int) -> None:
    words = [*program, "wait"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout and started.stdout.readline()
        started.send_signal(number)
        assert started.wait(60) == -number


def test_other_programs_are_started_as_always(program: list[str]) -> None:
    """With -c, no module of the test is there."""
    code = "import sys; print('forked_mark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"
