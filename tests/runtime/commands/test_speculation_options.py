"""`--speculate` and `--draft` are options of the commands that generate; others refuse them."""

from __future__ import annotations

import pytest
from click import Command
from click.testing import CliRunner

from mlcc.commands.bench import bench_command
from mlcc.commands.chat import chat_command
from mlcc.commands.evaluate import eval_command
from mlcc.commands.profile import profile_command
from mlcc.commands.run import run_command
from mlcc.commands.serve.command import serve_command


@pytest.mark.parametrize("command", [eval_command, profile_command], ids=lambda c: c.name)
@pytest.mark.parametrize("option", ["--speculate", "--draft"])
def test_what_measures_a_model_alone_does_not_take_them(command: Command, option: str) -> None:
    found = CliRunner().invoke(command, ["model", option, "lookup"])
    assert found.exit_code == 2 and option in found.output


@pytest.mark.parametrize(
    "command", [bench_command, chat_command, run_command, serve_command], ids=lambda c: c.name
)
def test_what_answers_takes_them(command: Command) -> None:
    assert {"speculate", "draft"} <= {row.name for row in command.params}
