"""Cached models: list, show, rm, by the names that users have for them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mlcc.cli import cli
from mlcc.errors import CheckpointError, InvalidRequestError, MlccError


@pytest.fixture
def store(
    tmp_path: Path, compiled_demo: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A cache with the demo twice, under one name of the hub's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "mlcc" / "compiled"
    for name in ("pip-1", "pip-2"):
        shutil.copytree(compiled_demo("q4", "cpu"), folder / name / "model")
        source = {"model": "hf://tiny/pip", "options": []}
        (folder / name / "source.json").write_text(json.dumps(source))
    return folder


def mlcc_output(*words: str) -> str:
    """The output of a command. Raises its exceptions."""
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_and_show(store: Path) -> None:
    rows = json.loads(mlcc_output("list", "--json"))
    assert [row["id"] for row in rows] == ["pip-1", "pip-2"]
    assert {row["name"] for row in rows} == {"tiny/pip"} and rows[0]["bytes"] > 1_000_000
    assert mlcc_output("list").count("tiny/pip") == 2
    shown = dict(line.split("  ", 1) for line in mlcc_output("show", "pip-1").splitlines()[:4])
    assert shown["model"].strip() == "demo (llama), 4,459,776 parameters"
    text = mlcc_output("show", "PIP-1")
    assert "\n  linears      t4_g32, 4.8" in text and "chat template  yes" in text
    assert "sampling       greedy unless" in text and not set("[{'") & set(text)
    assert json.loads(mlcc_output("show", "pip-1", "--json"))["model"]["name"] == "demo"
    for name in (str(store / "pip-2" / "model"), "pip-2", "tiny/pip:latest", "Pip:Q4"):
        if name != "Pip:Q4":
            assert "demo (llama)" in mlcc_output("show", name)
        else:
            with pytest.raises(InvalidRequestError, match="several 'Pip:Q4': pip-1, pip-2"):
                mlcc_output("show", name)


def test_rm_takes_one_of_several_by_its_own_name(store: Path) -> None:
    with pytest.raises(InvalidRequestError, match="several 'tiny/pip': pip-1, pip-2"):
        mlcc_output("rm", "tiny/pip")
    assert "is deleted" in mlcc_output("rm", "pip-2")
    mlcc_output("rm", "tiny/pip")
    assert not list(store.iterdir())
    with pytest.raises(CheckpointError, match="no model is kept as 'tiny/pip'; there are none"):
        mlcc_output("rm", "tiny/pip")


def test_rm_all_kinds(store: Path) -> None:
    assert mlcc_output("rm", "--all", "hf://tiny/pip").count("is deleted") == 2


def test_a_kept_name_is_a_model(store: Path) -> None:
    answer = mlcc_output("run", "demo", "Hi", "--threads", "1", "--max-tokens", "4")
    assert answer.strip()


def test_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert mlcc_output("list", "--json") == "[]\n" and "mlcc pull org/name" in mlcc_output("list")
    with pytest.raises(InvalidRequestError, match="which model"):
        mlcc_output("serve")


def test_a_mistyped_command_is_corrected() -> None:
    for typed, meant in (("srve", "serve"), ("ls", "list"), ("download", "pull")):
        result = CliRunner().invoke(cli, [typed])
        assert result.exit_code == 2 and f"did you mean `mlcc {meant}`?" in result.output
    result = CliRunner().invoke(cli, ["xyzzy"])
    assert "there is no command 'xyzzy'" in result.output and "did you mean" not in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_MLCC_COMPLETE" in mlcc_output("completion", shell)


def test_completion_knows_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    found = ShellComplete(cli, {}, "mlcc", "_MLCC_COMPLETE").get_completions([], "pu")
    assert [item.value for item in found] == ["pull"]


def test_doctor_says_what_works_here() -> None:
    found = {row["about"]: row for row in json.loads(mlcc_output("doctor", "--json"))}
    assert found["mlcc"]["ok"] and found["CPU"]["ok"] and found["memory"]["ok"]
    assert found["cuda"]["ok"] or found["cuda"]["text"]


def test_inspect_of_a_hubs_name() -> None:
    with pytest.raises(MlccError, match="hf://x/y: is a checkpoint of the hub; `mlcc pull x/y`"):
        mlcc_output("inspect", "hf://x/y")


def test_all_commands_have_help() -> None:
    assert isinstance(cli, click.Group)
    for name in cli.list_commands(click.Context(cli)):
        assert "Usage:" in mlcc_output(name, "--help")
