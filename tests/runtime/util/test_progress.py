"""Progress for people and programs: what is printed, when, and that a clock moves in silence."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable

import pytest

from mlcc.util import progress as module
from mlcc.util.progress import Progress


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


class Printed:
    """All that was printed on the standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._text = capsys, ""

    def getvalue(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    monkeypatch.delenv(module.VARIABLE, raising=False)
    return Printed(capsys)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_plain_lines_are_a_step_and_each_quarter(stderr: Printed) -> None:
    with Progress() as progress:
        progress.note("target", "cpu\x1b[2J")
        for done in range(0, 1001, 10):
            progress.step("packing", done, 1000, "bytes")
        progress.step("linking")
    lines = stderr.getvalue().splitlines()
    assert lines[0].startswith("target:       cpu") and "\x1b" not in lines[0]
    assert [line.split("packing")[1].split(" of")[0] for line in lines[1:6]] == [
        f" {percent:3d} %" for percent in (0, 25, 50, 75, 100)
    ]
    assert lines[6].endswith(" s linking") and len(lines) == 7


def test_a_line_is_printed_in_silence(stderr: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.0)
    with Progress("plain") as progress:
        progress.step("compiling", 3, 40, "files")
        until(lambda: stderr.getvalue().count(" s compiling 3 of 40 files\n") >= 2)


def test_the_clock_of_a_terminal_moves_and_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("auto") as progress:
        progress.step("waiting")
        until(lambda: terminal.getvalue().count(" s waiting") >= 2)
        progress.line("a note")
    assert "\r\x1b[Ka note\n" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_json_lines_are_for_programs(stderr: Printed) -> None:
    with pytest.raises(ValueError), Progress("json") as progress:
        progress.note("target", "cpu")
        progress.step("packing", 1, 4, "bytes")
        progress.step("packing", 4, 4, "bytes")
        progress.event("done", folder="out")
        progress.line("for people")
        raise ValueError("no disk")
    rows = [json.loads(line) for line in stderr.getvalue().splitlines()]
    assert all(row.pop("seconds") >= 0 for row in rows)
    assert rows == [
        {"event": "note", "name": "target", "text": "cpu"},
        {"event": "step", "step": "packing", "done": 1, "total": 4, "unit": "bytes"},
        {"event": "step", "step": "packing", "done": 4, "total": 4, "unit": "bytes"},
        {"event": "done", "folder": "out"},
        {"event": "error", "message": "no disk"},
    ]


@pytest.mark.parametrize(("mode", "patience"), [("none", 0.0), ("plain", 60.0), ("json", 60.0)])
def test_nothing_is_printed(stderr: Printed, mode: str, patience: float) -> None:
    with Progress(mode, patience) as progress:
        progress.step("short", 1, 2)
    assert not stderr.getvalue()


def test_the_environment_chooses(stderr: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.VARIABLE, "json")
    assert Progress().mode == "json" and Progress("none").mode == "none"
    monkeypatch.setenv(module.VARIABLE, "loud")
    assert Progress().mode == "auto"


def test_a_closed_standard_error_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    with Progress("plain") as progress:
        progress.step("working")
        progress.step("still working")
