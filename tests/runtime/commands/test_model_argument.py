"""MODEL as a text that no file system accepts: one line and exit code 2, from every command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.errors import CheckpointError, MlccError, UnsupportedError

TAIL = {"run": ["hi"], "chat": ["hi"]}
COMMANDS = ("compile", "chat", "serve", "run", "eval", "profile")
NAMES = {
    "empty": ("", "it is empty"),
    "one long name": ("x" * 300, "too long"),
    "a long path": ("a/" * 2500, "too long"),
    "NUL": ("a\0b", "null"),
    "a long name of the hub": ("hf://org/" + "n" * 5000, "more than 255 characters"),
}


def command(name: str) -> Any:
    return cli.get_command(click.Context(cli), name)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("case", NAMES)
def test_an_impossible_name_is_refused_in_one_short_line(name: str, case: str) -> None:
    model, reason = NAMES[case]
    error = CliRunner().invoke(command(name), [model, *TAIL.get(name, [])]).exception
    assert isinstance(error, CheckpointError), repr(error)
    assert reason in error.message and "mlcc compile" in error.message
    assert len(error.message) < 300 and error.message.isprintable() and error.exit_code == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_model_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "hi"}\n')
    tail = ["--text", str(texts)] if name == "eval" else TAIL.get(name, [])
    for model in ("no such\nfolder", "x" * 255):
        error = CliRunner().invoke(command(name), [model, *tail]).exception
        assert isinstance(error, CheckpointError), repr(error)
        assert error.message.isprintable() and error.exit_code == 2


def test_a_loop_of_links_is_no_model(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    error = CliRunner().invoke(command("run"), [str(loop), "hi"]).exception
    assert isinstance(error, CheckpointError) and "symbolic links" in error.message


def test_as_a_user_sees_it() -> None:
    words = [sys.executable, "-m", "mlcc", "run", "a" * 5000, "hi"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: '{'a' * 60}... (5000 characters)' can be no model: ")
    assert done.stderr.count("\n") == 1


def test_invalid_options_are_refused_before_a_compile(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for words, hint in (
        (["run", str(tmp_path), "hi", "--speculate", "banana"], "lookup, mtp, draft or off"),
        (["serve", str(tmp_path), "--speculate", "draft"], "add --draft ARTIFACT"),
        (["serve", str(tmp_path), "--lora", "a=b"], "--adapter-rank 16"),
        (["serve", str(tmp_path / "none"), "--lora", "a=b"], "none"),
    ):
        error = CliRunner().invoke(command(words[0]), words[1:]).exception
        assert isinstance(error, MlccError) and hint in error.message


def test_every_model_of_a_comparison_is_looked_for_first(
    compiled_demo: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model is evaluated if the last one, or the baseline, is missing."""
    opened: list[str] = []
    monkeypatch.setattr(
        "mlcc.commands.evaluate.load_model", lambda args, **_: opened.append(args.model)
    )
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "hi"}\n')
    demo, absent = str(compiled_demo("q4", "cpu")), str(tmp_path / "absent")
    for words in ([demo, absent], [demo, "--against", absent]):
        tail = ["--compare", "--text", str(texts)]
        error = CliRunner().invoke(command("eval"), [*words, *tail]).exception
        assert isinstance(error, CheckpointError) and "absent" in error.message
    assert not opened


def test_adapters_are_checked_before_a_model_is_loaded(
    compiled_demo: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model compiled without adapter slots is refused by its manifest, before weights are
    read."""
    started: list[object] = []
    monkeypatch.setattr("mlcc.server.serve.serve", lambda *_, **__: started.append(1))
    demo = str(compiled_demo("q4", "cpu"))
    for words in (["--lora", f"a={tmp_path}"], ["--lora-dir", str(tmp_path)]):
        error = CliRunner().invoke(command("serve"), [demo, *words]).exception
        assert isinstance(error, UnsupportedError) and "--adapter-rank" in error.message
    assert not started
