"""The help of each option is a sentence: a capital letter and a full stop."""

from __future__ import annotations

import click
import pytest

from mlcc.cli import cli

CONTEXT = click.Context(cli)


@pytest.mark.parametrize("name", cli.list_commands(CONTEXT))  # type: ignore[attr-defined]
def test_the_help_of_options(name: str) -> None:
    command = cli.get_command(CONTEXT, name)  # type: ignore[attr-defined]
    commands = [command, *getattr(command, "commands", {}).values()]
    for parameter in (each for one in commands for each in one.params):
        if isinstance(parameter, click.Option):
            text = parameter.help or ""
            assert text[:1].isupper() or text[:1].isdigit(), (parameter.opts, text)
            assert text.endswith("."), (parameter.opts, text)
            assert "  [" not in text, "a default is `show_default`"
            shown = parameter.make_metavar(CONTEXT)
            assert "RANGE" not in shown, (parameter.opts, shown, "a name of what is given")
